// A linear layer, written in C++, that takes every tensor for contiguous, beside its right twin.
//
// Both are a torch::autograd::Function behind an operator: torch.ops.gradverify_gallery.linear (right) and .linear_assumes_contiguous (faulty). The loops
// know a pointer and three sizes. Behind a transpose, a slice or a sum the numbers of a tensor do not lie one after the other, and the faulty twin
// computes with others, or with memory that is none of its own: its input's in forward, grad_output's in backward. Repair: `.contiguous()` before
// `data_ptr()`.
#include <Python.h>

#include <ATen/Dispatch.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#ifdef WITH_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

#include "assumes_contiguous.h"

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<Tensor>;

struct Right {
  static constexpr const char* name = "gradverify_gallery::linear";
  static Tensor taken(const Tensor& x) { return x.contiguous(); }
};

struct Faulty {
  static constexpr const char* name = "gradverify_gallery::linear_assumes_contiguous";
  static Tensor taken(const Tensor& x) { return x; }
};

void refuse_what_does_not_fit(const Tensor& x, const Tensor& w, const OptionalTensor& b) {
  TORCH_CHECK(x.dim() == 2 && w.dim() == 2 && x.size(1) == w.size(1), "linear: input ", x.sizes(), " and weight ", w.sizes(), " do not fit");
  TORCH_CHECK(!b || (b->dim() == 1 && b->size(0) == w.size(0)), "linear: weight ", w.sizes(), " and bias ", b->sizes(), " do not fit");
  for (const Tensor& other : {w, b.value_or(w)})
    TORCH_CHECK(x.scalar_type() == other.scalar_type(), "linear: input is ", x.scalar_type(), ", weight or bias is ", other.scalar_type());
}

// [rows, out], filled with the bias.
Tensor with_bias(const Tensor& x, const Tensor& w, const OptionalTensor& b) {
  Tensor y = x.new_zeros({x.size(0), w.size(0)});
  return b ? y.copy_(b->expand_as(y)) : y;
}

template <class Twin>
Tensor linear_cpu(const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
  refuse_what_does_not_fit(input, weight, bias);
  const Tensor x = Twin::taken(input), w = Twin::taken(weight);
  Tensor y = with_bias(x, w, bias);
  const Sizes sizes{x.size(0), x.size(1), w.size(0)};
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(x.scalar_type(), "linear", [&] {
    const scalar_t *from = x.const_data_ptr<scalar_t>(), *by = w.const_data_ptr<scalar_t>();
    scalar_t* to = y.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < sizes.rows; ++i)
      for (int64_t j = 0; j < sizes.out; ++j, ++to) *to = dot(from + i * sizes.in, by + j * sizes.in, sizes.in, *to);
  });
  return y;
}

#ifdef WITH_CUDA
template <class Twin>
Tensor linear_cuda(const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
  refuse_what_does_not_fit(input, weight, bias);
  const c10::cuda::CUDAGuard guard(input.device());
  const Tensor x = Twin::taken(input), w = Twin::taken(weight);
  Tensor y = with_bias(x, w, bias);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "linear", [&] {
    linear_on_cuda<scalar_t>(x.const_data_ptr<scalar_t>(), w.const_data_ptr<scalar_t>(), y.mutable_data_ptr<scalar_t>(),
                             {x.size(0), x.size(1), w.size(0)}, c10::cuda::getCurrentCUDAStream().stream());
  });
  return y;
}
#endif

template <class Twin>
Tensor linear(const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(Twin::name, "")
                             .template typed<Tensor(const Tensor&, const Tensor&, const OptionalTensor&)>();
  return op.call(input, weight, bias);
}

// With G = grad_output: dx = G·conj(W), dW = Gᵀ·conj(x), db = the sum of G's rows. Products are the layer itself, so that backward has a backward.
template <class Twin>
struct Linear : torch::autograd::Function<Linear<Twin>> {
  static Tensor forward(AutogradContext* ctx, const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    ctx->save_for_backward({input, weight});
    ctx->saved_data["has_bias"] = bias.has_value();
    return linear<Twin>(input, weight, bias);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad_outputs) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &grad = grad_outputs[0], &input = saved[0], &weight = saved[1];
    const bool bias = ctx->saved_data["has_bias"].toBool() && ctx->needs_input_grad(2);
    return {ctx->needs_input_grad(0) ? linear<Twin>(grad, weight.t().conj().contiguous(), {}) : Tensor(),
            ctx->needs_input_grad(1) ? linear<Twin>(grad.t().contiguous(), input.t().conj().contiguous(), {}) : Tensor(),
            bias ? grad.sum(0) : Tensor()};
  }
};

template <class Twin>
Tensor linear_autograd(const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
  return Linear<Twin>::apply(input, weight, bias);
}

}  // namespace

TORCH_LIBRARY(gradverify_gallery, library) {
  library.def("linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor");
  library.def("linear_assumes_contiguous(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor");
}

TORCH_LIBRARY_IMPL(gradverify_gallery, CPU, library) {
  library.impl("linear", linear_cpu<Right>);
  library.impl("linear_assumes_contiguous", linear_cpu<Faulty>);
}

#ifdef WITH_CUDA
TORCH_LIBRARY_IMPL(gradverify_gallery, CUDA, library) {
  library.impl("linear", linear_cuda<Right>);
  library.impl("linear_assumes_contiguous", linear_cuda<Faulty>);
}
#endif

TORCH_LIBRARY_IMPL(gradverify_gallery, Autograd, library) {
  library.impl("linear", linear_autograd<Right>);
  library.impl("linear_assumes_contiguous", linear_autograd<Faulty>);
}

// `import gradverify_gallery_cpp` loads the library, which registers the operators.
PyMODINIT_FUNC PyInit_gradverify_gallery_cpp() {
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "gradverify_gallery_cpp", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};
  return PyModule_Create(&definition);
}
