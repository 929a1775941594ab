"""`topicwright completion`: what a shell has to know to complete commands, flags, names and files.

The shell runs `topicwright` itself on Tab (argcomplete), so what it offers is what the release at hand understands.
"""

from __future__ import annotations

import argparse

from controller.cli.commands import COMMANDS, Parsers

SHELLS = ("bash", "zsh", "fish")
HOW = """\
    bash    source <(topicwright completion bash)             in ~/.bashrc
    zsh     source <(topicwright completion zsh)              in ~/.zshrc, after compinit
    fish    topicwright completion fish | source              in ~/.config/fish/config.fish
"""


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "completion",
        description=f"Print a script: {COMMANDS['completion'].summary}.",
        epilog=HOW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    parser.set_defaults(func=_print_script)


def _print_script(options: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["topicwright"], shell=options.shell))
    return 0


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell how its line may go on, and end the process; returns where no shell wants to know."""
    import argcomplete

    argcomplete.autocomplete(parser)
