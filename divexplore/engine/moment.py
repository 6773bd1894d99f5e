"""Bring a configuration to one step and keep that forward, so that it can be repeated and looked into."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from divexplore.config import RunConfig
from divexplore.engine.batch import Batch, fill_batch
from divexplore.engine.interventions import intervene, surround
from divexplore.engine.numerics import applied, attention, check_dtype
from divexplore.engine.run import decode
from divexplore.errors import Refusal

if TYPE_CHECKING:
    from divexplore.models.model import Model, Prompt
    from divexplore.trace import Trace

__all__ = ["Moment", "reach"]


@dataclass(frozen=True, eq=False)
class Moment:
    """The forward of one step with all that it was given, the cache as it stood before included.

    Parameters
    ----------
    net
        The transformers model that ran.
    config
        The configuration it ran under.
    batch
        The rows of the batch.
    step
        The step whose logits the forward gives.
    arguments
        Keyword arguments of the forward; each replay gets its own copy.
    logits
        The last position's raw logits, shape ``(rows, vocab)``, of the forward as it ran in the decoding loop.
    """

    net: Any
    config: RunConfig
    batch: Batch
    step: int
    arguments: dict[str, Any]
    logits: torch.Tensor

    @property
    def row(self) -> torch.Tensor:
        """The observed raw row, shape ``(vocab,)``."""
        return self.logits[self.batch.row]

    @property
    def queries(self) -> int:
        """Columns that this forward feeds, pads included."""
        return int(self.arguments["input_ids"].shape[1])

    @property
    def columns(self) -> int:
        """Columns that it can attend to, pads included: the prefill's width and the tokens fed since."""
        return self.batch.width + self.step

    @property
    def kernel(self) -> str:
        """The attention implementation that is in force in it."""
        return self.config.attn_implementation or self.net.config._attn_implementation

    def replay(self, *contexts: AbstractContextManager[Any]) -> None:
        """Run the forward again inside `contexts`, which look on.

        Raises
        ------
        RuntimeError
            Where its logits are not bit-equal with the first ones: then looking on has changed what was looked at.
        """
        with (
            applied(self.config),
            attention(self.net, self.config.attn_implementation),
            surround(self.net, self.config),
            torch.inference_mode(),
        ):
            arguments = copy.deepcopy(self.arguments)
            with contextlib.ExitStack() as stack:
                for context in contexts:
                    stack.enter_context(context)
                # the arguments are as they came out of any hook on the model itself, so those are not run again
                logits = self.net.forward(**arguments).logits[:, -1]
            same = torch.equal(logits.nan_to_num(), self.logits.nan_to_num())
        if not same:
            raise RuntimeError(
                f"step {self.step} gave other logits when it was repeated under observation ({self.config}); "
                "the run is not deterministic, or recording disturbs it"
            )


def reach(
    model: Model,
    prompt: Prompt,
    config: RunConfig,
    tokens: Sequence[int],
    step: int,
    *,
    fillers: Trace | None = None,
    net: Any = None,
) -> Moment:
    """Force the observed row along `tokens` in the shapes of `config` and keep the forward of `step`.

    Parameters
    ----------
    tokens
        Ids of the steps before `step`, at least that many.
    fillers
        A run of `config` whose other rows are replayed, as `decode` takes it.
    net
        A prepared transformers model in place of the canonical one.

    Raises
    ------
    Refusal
        Where the run ends before that step.
    RuntimeError
        Where it meets an error on the way.
    """
    if net is None:
        check_dtype(config.dtype or str(model.dtype).removeprefix("torch."), config.device or "cpu")
        net = model.instance(config.dtype, config.device)
    batch = fill_batch(model, prompt.ids, config, chat=prompt.chat)
    last = -(-batch.width // (config.prefill_chunk or batch.width)) - 1 + step  # forwards before it
    seen = 0
    kept: dict[str, Any] = {}

    def before(module: Any, args: tuple[Any, ...], arguments: dict[str, Any]) -> None:
        if seen == last:
            kept["arguments"] = copy.deepcopy(arguments)  # before the forward adds to the cache

    def after(module: Any, args: tuple[Any, ...], output: Any) -> None:
        nonlocal seen
        if seen == last:
            kept["logits"] = output.logits[:, -1].clone()
        seen += 1

    @contextlib.contextmanager
    def looking_on(net: Any, config: RunConfig) -> Iterator[None]:
        hooks = [net.register_forward_pre_hook(before, with_kwargs=True), net.register_forward_hook(after)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    with intervene(looking_on):  # entered after whatever else surrounds a run, so it sees what the model sees
        trace = decode(model, prompt, config, step + 1, forced=tokens[:step], fillers=fillers, net=net)
    if trace.meta["error"]:
        raise RuntimeError(f"the run ended before step {step}: {trace.meta['error']}")
    if "logits" not in kept:
        raise Refusal(
            f"step {step}", f"a step that the run reaches (it ended at step {len(trace)})", "Choose an earlier step."
        )
    return Moment(net, config, batch, step, kept["arguments"], kept["logits"])
