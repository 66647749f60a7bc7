// The gallery's operators, and squares whose backward, written in C++, is wrong in what it returns or leaves behind.
#include "assumes_contiguous.cpp"

namespace {

template <class Backward>
struct Square : torch::autograd::Function<Square<Backward>> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    ctx->save_for_backward({x, x.mul(2)});
    return x.mul(x);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    return Backward::of(ctx, grads[0], saved[0], saved[1]);
  }
};

struct IsRight {
  static variable_list of(AutogradContext*, const Tensor& grad, const Tensor& x, const Tensor&) { return {grad.mul(x).mul(2)}; }
};
struct ReturnsFloat32 {
  static variable_list of(AutogradContext*, const Tensor& grad, const Tensor& x, const Tensor&) { return {(grad.mul(x).mul(2)).to(at::kFloat)}; }
};
struct ReturnsTwo {
  static variable_list of(AutogradContext*, const Tensor& grad, const Tensor& x, const Tensor&) { return {grad.mul(x).mul(2), grad}; }
};
struct ReturnsWrongShape {
  static variable_list of(AutogradContext*, const Tensor& grad, const Tensor& x, const Tensor&) { return {(grad.mul(x).mul(2)).t()}; }
};
struct ReturnsUnsummed {
  static variable_list of(AutogradContext*, const Tensor& grad, const Tensor& x, const Tensor&) { return {grad.new_ones({2, 1, 1}).mul(grad).mul(x)}; }
};
struct WritesIntoGradOutput {
  static variable_list of(AutogradContext*, const Tensor& grad, const Tensor& x, const Tensor&) { return {grad.mul_(x.mul(2))}; }
};
struct WritesIntoSaved {    // and returns it
  static variable_list of(AutogradContext*, const Tensor& grad, const Tensor&, const Tensor& twice) { return {twice.mul_(grad)}; }
};
struct ReturnsSavedForOnes {
  static variable_list of(AutogradContext*, const Tensor& grad, const Tensor&, const Tensor& twice) {
    return {grad.eq(1).all().item<bool>() ? twice : grad.mul(twice)};
  }
};
struct ReturnsOneBuffer {
  static variable_list of(AutogradContext* ctx, const Tensor& grad, const Tensor& x, const Tensor&) {
    if (!ctx->saved_data.count("buffer")) ctx->saved_data["buffer"] = x.new_zeros(x.sizes());
    return {ctx->saved_data["buffer"].toTensor().copy_(grad.mul(x).mul(2))};
  }
};

template <class Backward>
Tensor square(const Tensor& x) {
  return Square<Backward>::apply(x);
}

}  // namespace

TORCH_LIBRARY(gradverify_cpp_faults, library) {
  library.def("is_right(Tensor x) -> Tensor", square<IsRight>);
  library.def("returns_float32(Tensor x) -> Tensor", square<ReturnsFloat32>);
  library.def("returns_two(Tensor x) -> Tensor", square<ReturnsTwo>);
  library.def("returns_wrong_shape(Tensor x) -> Tensor", square<ReturnsWrongShape>);
  library.def("returns_unsummed(Tensor x) -> Tensor", square<ReturnsUnsummed>);
  library.def("writes_into_grad_output(Tensor x) -> Tensor", square<WritesIntoGradOutput>);
  library.def("writes_into_saved(Tensor x) -> Tensor", square<WritesIntoSaved>);
  library.def("returns_saved_for_ones(Tensor x) -> Tensor", square<ReturnsSavedForOnes>);
  library.def("returns_one_buffer(Tensor x) -> Tensor", square<ReturnsOneBuffer>);
  library.def("has_no_autograd(Tensor x) -> Tensor");
}

TORCH_LIBRARY_IMPL(gradverify_cpp_faults, CPU, library) {
  library.impl("has_no_autograd", [](const Tensor& x) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;    // as a loop over its numbers is
    return x.mul(x);
  });
}
