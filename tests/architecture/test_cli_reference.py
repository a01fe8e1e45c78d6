"""The page of the command line says what the commands say."""

import click

from fluss_lab.cli.commands import commands
from tools.cli_reference import PAGE, commands_of, page


def test_the_page_is_that_of_the_commands():
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tools.cli_reference writes it"


def test_every_command_says_what_it_does_and_what_its_options_mean():
    silent = [name for name, command in commands_of(commands, "fluss-lab") if not command.help]
    silent += [
        f"{name} {option.name}"
        for name, command in commands_of(commands, "fluss-lab")
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden and not option.help
    ]
    assert silent == []
