from __future__ import annotations

from torch.autograd import Function

from gradverify.subject.declared import lacking


class Plain(Function):
    pass


class Pushes(Function):
    @staticmethod
    def jvp(ctx, x_t):
        return x_t


class Generated(Function):
    generate_vmap_rule = True


class Own(Function):
    @staticmethod
    def vmap(info, in_dims, x):
        return x, 0


class Inherits(Own):
    pass


class Refuses(Function):
    generate_vmap_rule = False


def test_the_first_class_without_the_method_is_named():
    assert lacking((Pushes, Plain), "jvp") == "Plain"
    assert lacking((Pushes,), "jvp") is None
    assert lacking((), "jvp") is None


def test_either_form_of_a_vmap_rule_counts_and_so_does_an_inherited_one():
    assert lacking((Generated, Own, Inherits), "vmap", "generate_vmap_rule") is None
    assert lacking((Generated, Pushes), "vmap", "generate_vmap_rule") == "Pushes"
    assert lacking((Refuses,), "vmap", "generate_vmap_rule") == "Refuses"
