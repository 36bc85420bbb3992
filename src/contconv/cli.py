"""The command `contconv`. Exit codes: 0 done, 1 a claim failed, 2 bad usage or a bad file, 130 interrupted."""

import sys
from collections.abc import Sequence

USAGE, INTERRUPTED = 2, 130
TRAINING = ("lightning_fabric", "safetensors")  # come with the extra [train]


def main(arguments: Sequence[str] | None = None) -> int:
    """Obey a command line; errors of the user's are one line, without a traceback."""
    try:
        return _obeyed(arguments)
    except KeyboardInterrupt:
        print("contconv: interrupted; what was finished is kept", file=sys.stderr)
        return INTERRUPTED
    except ModuleNotFoundError as error:
        name = (error.name or "").split(".")[0]
        if name == "contconv":
            raise
        extras = "cli,train" if name in TRAINING else "cli"
        print(f"contconv: {name} is missing: pip install 'contconv[{extras}]'", file=sys.stderr)
        return USAGE
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"contconv: {' '.join(str(error).split())}", file=sys.stderr)
        return USAGE
    except MemoryError:
        print("contconv: not enough memory", file=sys.stderr)
        return USAGE


def _obeyed(arguments: Sequence[str] | None) -> int:
    from typing import Annotated

    import tyro

    from contconv.commands import cifar, convert, experiment, explain, export, report, resize

    command = tyro.cli(
        Annotated[experiment.Experiment, tyro.conf.subcommand("experiment")]
        | Annotated[convert.Convert, tyro.conf.subcommand("convert")]
        | Annotated[explain.Explain, tyro.conf.subcommand("explain")]
        | Annotated[resize.Resize, tyro.conf.subcommand("resize")]
        | Annotated[report.Report, tyro.conf.subcommand("report")]
        | Annotated[export.Export, tyro.conf.subcommand("export")]
        | Annotated[cifar.Cifar, tyro.conf.subcommand("cifar")],
        prog="contconv",
        description="Continuous convolution: the paper's experiments and networks, conversion, pictures resized.",
        args=arguments,
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
    )
    if isinstance(command, cifar.Cifar):
        return cifar.obey(command)
    if isinstance(command, experiment.Experiment):
        return experiment.obey(command)
    if isinstance(command, convert.Convert):
        return convert.obey(command)
    if isinstance(command, export.Export):
        return export.obey(command)
    if isinstance(command, explain.Explain):
        return explain.obey(command)
    if isinstance(command, resize.Resize):
        return resize.obey(command)
    return report.obey(command)


if __name__ == "__main__":
    sys.exit(main())
