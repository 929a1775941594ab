"""`topicwright completion`: print the script that completes commands, flags and names in a shell.

On Tab the shell runs `topicwright` itself (argcomplete), so completions always match the installed release.
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
        description=f"{COMMANDS['completion'].headline}.",
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
    """Answer a shell's request for completions and exit; return if there is none."""
    import argcomplete

    argcomplete.autocomplete(parser)
