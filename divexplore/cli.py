"""The command line: open the notebooks, compare two configurations, list the models."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

import divexplore
from divexplore.comparison.prices import pieces, price, price_of_processes
from divexplore.config import PRESETS, RunConfig
from divexplore.errors import Interrupted, Refusal, nearest
from divexplore.models.request import check_steps, checked_prompt

if TYPE_CHECKING:
    from divexplore.comparison.comparison import Comparison

__all__ = ["app", "main"]

EXIT_REFUSED = 2
EXIT_OUR_ERROR = 4
EXIT_INTERRUPTED = 130
_DEFAULT_PRESET = next(iter(PRESETS))

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class _EachOnce(TyperCommand):
    """A command that refuses an option given twice: typer would take the last one, and say nothing."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command line."""
        *_, given = self.make_parser(ctx).parse_args(args=list(args))
        for option in given:
            if option.param_type_name == "option" and not option.multiple and given.count(option) > 1:
                name = " or ".join([*option.opts, *option.secondary_opts])
                raise Refusal(f"{name} {given.count(option)} times", "each option once", "Remove all but one.")
        return super().parse_args(ctx, args)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 2 on a wrong request, 4 on an error of ours, 130 on Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    as_json = "--json" in arguments
    try:
        code = app(args=arguments, prog_name="divexplore", standalone_mode=False)
        sys.stdout.flush()  # a reader that has gone is met here, not at the interpreter's end
    except Refusal as refusal:
        return _refuse(refusal, as_json)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _reader_gone()
    except SystemExit as leaving:  # Jupyter's own, or typer's way to say that the reader has gone
        if isinstance(leaving.__context__, BrokenPipeError):
            return _reader_gone()
        raise
    except Exception as error:  # the border: whatever it is, no traceback reaches the user
        if hasattr(error, "format_message"):  # typer's own: a missing argument, an unknown option
            return _refuse(Refusal(error.format_message().rstrip("."), *_usage(error, arguments)), as_json)
        return _our_error(error, as_json)
    return code if isinstance(code, int) else 0


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"divexplore {divexplore.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and leave.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """See where, why and how far two runs of the same language model part ways."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(cls=_EachOnce)
def lab(
    jupyter: Annotated[
        list[str] | None, typer.Argument(metavar="[-- JUPYTER ARGUMENTS]", help="Passed on to JupyterLab.")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Whether to open a browser.")] = True,
    port: Annotated[int | None, typer.Option(metavar="N", help="Port to listen on.")] = None,
) -> None:
    """Open JupyterLab on the quickstart."""
    from divexplore.lab import open_lab

    open_lab(browser=browser, port=port, extra=jupyter or ())


@app.command(cls=_EachOnce)
def models() -> None:
    """List the models that have a name here; a folder, a GGUF file or a hub id works as well."""
    from divexplore.models.catalog import CATALOG

    width = max(map(len, CATALOG))
    for entry in CATALOG.values():
        typer.echo(f"{entry.name:<{width}}  {entry.summary}")


@app.command(cls=_EachOnce)
def compare(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The text that both sides continue.")],
    model: Annotated[str, typer.Option(metavar="M", help="A name, a folder, a GGUF file or a hub id.")] = "fairy-tales",
    a: Annotated[
        str | None, typer.Option("--a", metavar="K=V,K=V", help="Side A, such as dtype=bfloat16,batch_size=1.")
    ] = None,
    b: Annotated[
        str | None, typer.Option("--b", metavar="K=V,K=V", help="Side B; a field left out stays as the model has it.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"Both sides by name: {', '.join(PRESETS)}. Without --a and --b it is {_DEFAULT_PRESET!r}.",
        ),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(metavar="N", help="Steps at most.")] = 128,
    chat: Annotated[
        bool | None, typer.Option("--chat/--no-chat", help="Wrap the prompt in the chat template, where there is one.")
    ] = None,
    evidence: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help=f"fast: the two runs only; default: also why, {price('default')}; full: {price('full')}.",
        ),
    ] = "default",
    save: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the comparison in this folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of the report.")] = False,
) -> int:
    """Run PROMPT under two configurations and report where and why they part; exits with 0 whatever the verdict."""
    side_a, side_b = _sides(a, b, preset)
    checked_prompt(prompt)  # here already: torch and the model take seconds to load
    check_steps(max_new_tokens)
    if save is not None:
        _make(save)
    if evidence == "full":
        _say(f"full evidence takes {price(evidence)}: {pieces(evidence)}")
    if (processes := price_of_processes(side_a, side_b)) is not None:
        _say(processes)
    # whatever a library prints, stdout holds the answer alone
    with contextlib.redirect_stdout(sys.stderr), _notes() as notes, _progress_bar() as progress:
        comparison = divexplore.compare(
            model,
            prompt,
            a=side_a,
            b=side_b,
            max_new_tokens=max_new_tokens,
            chat=chat,
            evidence=evidence,
            progress=progress,
        )
    if as_json:
        from divexplore.trace import strict_json

        typer.echo(strict_json(comparison.to_dict(), indent=2))
    else:
        typer.echo(str(comparison))
    if save is not None:  # last, so that a full disk does not take the answer with it
        _save(comparison, save)
    return EXIT_INTERRUPTED if Interrupted in notes else 0


@app.command(cls=_EachOnce)
def scan(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A text file, a prompt a line; without it bundled ones.")
    ] = None,
    model: Annotated[str, typer.Option(metavar="M", help="A name, a folder, a GGUF file or a hub id.")] = "fairy-tales",
    config: Annotated[
        str, typer.Option(metavar="K=V,K=V", help="What to decode with, such as dtype=bfloat16,batch_size=1.")
    ] = "",
    budget_seconds: Annotated[float, typer.Option(metavar="S", help="Stop after this time.")] = 20,
    max_new_tokens: Annotated[int, typer.Option(metavar="N", help="Steps at most, of each prompt.")] = 48,
    epsilon: Annotated[
        float | None, typer.Option(metavar="E", help="Logits that another configuration moves: marks steps at risk.")
    ] = None,
    chat: Annotated[
        bool | None, typer.Option("--chat/--no-chat", help="Wrap prompts in the chat template, where there is one.")
    ] = None,
    rows: Annotated[int, typer.Option(metavar="R", help="Lines to print.", min=1)] = 20,
) -> None:
    """Rank the steps of many prompts by their margin: where another configuration could split."""
    prompts = None if file is None else _lines(file)
    check_steps(max_new_tokens)
    with contextlib.redirect_stdout(sys.stderr), _notes():
        found = divexplore.find_near_ties(
            model, prompts, RunConfig.parse(config), budget_seconds, max_new_tokens, epsilon, chat=chat
        )
    typer.echo(f"{'ULPs':>8} {'margin':>9} {'step':>5}  {'risk':4}  token, runner-up, prompt")
    for row in found.head(rows).iter_rows(named=True):
        risk = {None: "", True: "yes", False: "no"}[row["at_risk"]]
        words = f"{row['text']!r}, {row['runner_up']!r}, {row['prompt']!r}"
        typer.echo(f"{row['margin_ulps']:8.3g} {row['margin']:9.3g} {row['step']:5}  {risk:4}  {words}")
    _say(f"{found.height} steps of {found['prompt_index'].n_unique()} prompts")
    if epsilon is not None:
        _say(f"{found['at_risk'].sum()} steps have a margin of at most 2 * {epsilon:g}")


def _lines(file: Path) -> list[str]:
    try:
        # a prompt may hold what else str.splitlines takes for the end of a line
        return [line for line in file.read_text(encoding="utf-8-sig").split("\n") if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(f"the file {file} ({error})", "a UTF-8 text file, a prompt a line", "Name another.") from error


@app.command(cls=_EachOnce)
def probe(
    isa: Annotated[
        bool, typer.Option("--isa/--no-isa", help="Also try the libraries' instruction sets, each in a fresh process.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The tables as one JSON object.")] = False,
) -> None:
    """Tell whether this machine's products depend on the number of rows, the length of the sum or the threads."""
    from divexplore.engine.probe import report

    typer.echo(report(isa=isa, as_json=as_json))


@contextlib.contextmanager
def _notes() -> Iterator[list[type[Warning]]]:
    """Say our own warnings as lines, without the place in the code; their categories are in the list afterwards."""
    categories: list[type[Warning]] = []
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", RuntimeWarning)
        yield categories
    for note in notes:
        categories.append(note.category)
        if issubclass(note.category, RuntimeWarning):
            _say(str(note.message))


@contextlib.contextmanager
def _progress_bar() -> Iterator[Callable[[str, int, int, str], None]]:
    """A bar for each run on stderr, where that is a terminal."""
    from tqdm import tqdm

    with tqdm(unit=" steps", leave=False, disable=None) as bar:

        def show(name: str, done: int, total: int, tail: str) -> None:
            if done == 1:
                bar.reset(total)
            bar.set_description(name, refresh=False)
            bar.update(done - bar.n)

        yield show


def _sides(a: str | None, b: str | None, preset: str | None) -> tuple[RunConfig, RunConfig]:
    if preset is not None and (a is not None or b is not None):
        raise Refusal("--preset beside --a or --b", "one or the other", "Leave --preset out, or leave both sides out.")
    if a is None and b is None:
        name = _DEFAULT_PRESET if preset is None else preset
        if name not in PRESETS:
            raise Refusal(f"--preset {name}", ", ".join(PRESETS), f"Choose one of these.{nearest(name, PRESETS)}")
        return PRESETS[name].a, PRESETS[name].b
    return RunConfig.parse(a or ""), RunConfig.parse(b or "")


def _make(folder: Path) -> None:
    """Make the folder before the run: what cannot be kept is told at once."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> Refusal:
    return Refusal(f"--save {folder} ({error.strerror})", "a folder that can be written", "Name another.")


def _save(comparison: Comparison, folder: Path) -> None:
    try:
        comparison.save(folder)
    except OSError as error:
        raise _unwritable(folder, error) from error
    _say(f"saved in {folder}")


def _reader_gone() -> int:
    """End quietly where the reader of stdout has seen enough, as ``head`` does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more at its end
    return 0


def _usage(error: Any, arguments: Sequence[str]) -> tuple[str, str]:
    """What would have been right where typer found a mistake, and where to look."""
    commands = [command.callback.__name__ for command in app.registered_commands if command.callback]
    command = next((word for word in arguments if word in commands), None)
    if command is None:
        return f"{', '.join(commands)}, and their options", "See divexplore --help."
    parameter = getattr(error, "param", None)
    if parameter is not None:
        allowed = f"{parameter.metavar or parameter.name}: {parameter.help}"
    else:
        allowed = ", ".join(name for one in error.ctx.command.params for name in one.opts if name.startswith("--"))
    return allowed, f"See divexplore {command} --help."


def _refuse(refusal: Refusal, as_json: bool) -> int:
    if as_json:
        _print_error(refusal.to_dict())
    _say(f"{refusal.asked}\n  allowed: {refusal.allowed}\n  {refusal.do}")
    return EXIT_REFUSED


def _our_error(error: Exception, as_json: bool) -> int:
    place = traceback.extract_tb(error.__traceback__)[-1]
    asked = f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
    do = "This is an error in divexplore or below it: please report this line, your command and divexplore --version."
    if as_json:
        _print_error({"asked": asked, "allowed": "", "do": do})
    _say(f"{asked}\n  {do}")
    return EXIT_OUR_ERROR


def _print_error(error: dict[str, Any]) -> None:
    from divexplore.trace import strict_json

    typer.echo(strict_json({"error": error}))


def _say(line: str) -> None:
    sys.stderr.write(f"divexplore: {line}\n")


if __name__ == "__main__":
    sys.exit(main())
