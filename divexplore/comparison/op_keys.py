"""What does each operation of a forward put out? Watched by module path, operation and occurrence."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["Key", "ModuleOutputs", "Modules", "OperationOutputs", "See"]

_MOVES = frozenset(
    {
        "_to_copy",
        "_unsafe_view",
        "bfloat16",
        "clone",
        "contiguous",
        "copy_",
        "detach",
        "double",
        "empty_like",
        "float",
        "full_like",
        "half",
        "lift_fresh",
        "new_zeros",
        "ones_like",
        "reshape",
        "to",
        "type_as",
        "zeros_like",
    }
)
"""Operations that compute nothing: copies, casts and fillings. Views are known by their schema."""


class Key(NamedTuple):
    """One output of one forward: module path, operation, and which time it ran in that module."""

    module: str
    operation: str
    occurrence: int


See = Callable[[Key, torch.Tensor, frozenset[Key]], None]
"""Called with an output, and the earlier outputs that went into it."""


class Modules:
    """The path of the module that is running; a context manager that hooks every module of a model."""

    def __init__(self, net: Any) -> None:
        self._net = net
        base = getattr(net, "base_model_prefix", "")
        self.names = {module: short(name, base) for name, module in net.named_modules()}
        self._stack: list[str] = []
        self._hooks: list[Any] = []

    @property
    def current(self) -> str:
        """Path of the innermost running module, without the base model's prefix: ``layers.0.self_attn.q_proj``."""
        return self._stack[-1] if self._stack else ""

    def _enter(self, module: Any, args: Any) -> None:
        self._stack.append(self.names[module])

    def _leave(self, module: Any, args: Any, output: Any) -> None:
        self._stack.pop()

    def __enter__(self) -> Modules:
        for module in self.names:
            self._hooks.append(module.register_forward_pre_hook(self._enter, prepend=True))
            self._hooks.append(module.register_forward_hook(self._leave, always_call=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._stack.clear()


class OperationOutputs(TorchDispatchMode):
    """Shows every floating output of every operation; inside inference mode composite operations are seen whole.

    Views, casts, copies and integers are not shown. With `follow`, what went into an operation is followed through them
    by the storage that a tensor lives in.
    """

    def __init__(self, modules: Modules, see: See, *, follow: bool = False) -> None:
        super().__init__()
        self._modules, self._see, self._follow = modules, see, follow
        self._count: Counter[tuple[str, str]] = Counter()
        self._origin: dict[int, frozenset[Key]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and show its outputs."""
        kwargs = kwargs or {}
        fed = self._fed(args, kwargs) if self._follow else frozenset()
        result = func(*args, **kwargs)
        name, silent = _kind(func)
        outputs = [result] if isinstance(result, torch.Tensor) else _tensors(result)
        module = self._modules.current
        occurrence = self._count[module, name]
        if not silent:
            self._count[module, name] += 1
        for number, output in enumerate(outputs):
            origin = fed
            if not silent and (output.is_floating_point() or output.is_complex()):
                suffix = f"[{number}]" if len(outputs) > 1 else ""
                key = Key(module, f"{func.namespace}.{name}{suffix}", occurrence)
                self._see(key, output, fed)
                origin = frozenset({key})
            if self._follow:
                self._origin[_storage(output)] = origin
        return result

    def _fed(self, args: Any, kwargs: Any) -> frozenset[Key]:
        return frozenset().union(*(self._origin.get(_storage(x), frozenset()) for x in _tensors((args, kwargs))))


@dataclass
class ModuleOutputs:
    """Shows every floating output of every module as it ends: what two different attention kernels have in common."""

    modules: Modules
    see: See
    _hooks: list[Any] = field(default_factory=list)
    _count: Counter[str] = field(default_factory=Counter)

    def _show(self, module: Any, args: Any, output: Any) -> None:
        name = self.modules.names[module]
        occurrence = self._count[name]
        self._count[name] += 1
        values = output.to_tuple() if hasattr(output, "to_tuple") else output
        tensors = values if isinstance(values, tuple | list) else (values,)
        for number, tensor in enumerate(tensors):  # by place: the weights that only one kernel gives stay unmatched
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                self.see(Key(name, f"output[{number}]" if number else "output", occurrence), tensor, frozenset())

    def __enter__(self) -> ModuleOutputs:
        self._hooks = [module.register_forward_hook(self._show) for module in self.modules.names]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()


def short(name: str, base: str) -> str:
    """A module's path without the base model's prefix; the base model itself keeps its name."""
    return name.removeprefix(f"{base}.") if base else name


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _tensors(values: Any) -> list[torch.Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


@functools.cache
def _kind(func: Any) -> tuple[str, bool]:
    """An operation's name, and whether it computes nothing: a view, a move, or something made of no tensor."""
    name, schema = func.overloadpacket.__name__, func._schema
    view = bool(schema.returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
    made_of_nothing = not any("Tensor" in str(argument.type) for argument in schema.arguments)
    return name, view or made_of_nothing or name in _MOVES
