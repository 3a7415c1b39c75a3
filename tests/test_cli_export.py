"""`chainrule export`: a graph dump in another format."""

import json

import pytest
from typer.testing import CliRunner

import chainrule
from chainrule.__main__ import ExportName, commands
from chainrule.export.formats import TRACE_FORMATS
from chainrule.spec import ModelSpec
from chainrule.trace.privacy import SOURCES


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    path = tmp_path_factory.mktemp("dumps") / "net.json"
    return chainrule.save(chainrule.trace_spec(ModelSpec.from_query("widths=5,4,1")), path)


def export(*arguments):
    return CliRunner().invoke(commands, ["export", *map(str, arguments)], catch_exceptions=False)


@pytest.mark.parametrize("form", TRACE_FORMATS)
def test_every_format_is_written_as_the_library_writes_it(form, dump, tmp_path):
    named = f"net{TRACE_FORMATS[form].file.removeprefix('trace')}"
    wanted = chainrule.save(chainrule.load(dump), tmp_path / "library" / named).read_bytes()
    by_suffix = export(dump, "-o", tmp_path / named)
    assert (by_suffix.exit_code, by_suffix.output) == (0, "")
    assert (tmp_path / named).read_bytes() == wanted
    assert export(dump, "--format", form).stdout_bytes == wanted
    assert form in {each.value for each in ExportName}


def test_an_export_holds_as_much_source_code_as_was_asked_for(dump):
    written = {
        sources: json.loads(export(dump, "--format", "json", "--sources", sources).stdout) for sources in SOURCES
    }
    assert written["context"] == json.loads(dump.read_bytes())
    assert [each["sources"] == {} for each in written.values()] == [True, True, False]
    assert [each["ops"][0]["source"] is None for each in written.values()] == [True, False, False]


def test_options_of_the_format(dump, tmp_path):
    layers, everything = tmp_path / "layers.svg", tmp_path / "all.svg"
    assert export(dump, "-o", layers).exit_code == 0
    assert export(dump, "-o", everything, "--with", "level=all", "--with", "fold=off").exit_code == 0
    assert everything.stat().st_size > layers.stat().st_size
    wrong = export(dump, "--format", "svg", "--with", "level=attic")
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert wrong.stderr == "chainrule: level: 'attic' is not layer, all or a number\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["DUMP"], "the format is missing; give --format, or -o with a suffix such as .svg"),
        (["DUMP", "-o", "net.png"], "net.png: unknown suffix; expected one of .json, .dot"),
        (["DUMP", "--format", "csv", "--with", "level"], "--with level: expected KEY=VALUE"),
        (["DUMP", "--format", "csv", "--with", "level=all"], "level: unknown key; the format csv has no keys"),
        (["nowhere.json", "--format", "csv"], "nowhere.json: No such file or directory"),
        (["FOLDER", "--format", "csv"], "Is a directory"),
        (["OTHER", "--format", "csv"], "not a graph dump of schema chainrule.trace/1"),
        (["DUMP", "-o", "FOLDER/no/net.dot"], "No such file or directory"),
    ],
)
def test_what_makes_no_sense_is_one_line(arguments, message, dump, tmp_path):
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"schema": "chainrule.trace/2"}))
    places = {"DUMP": str(dump), "OTHER": str(other), "FOLDER": str(tmp_path)}
    for word, place in places.items():
        arguments = [argument.replace(word, place) for argument in arguments]
    answer = export(*arguments)
    assert answer.exit_code in (1, 2)
    assert answer.stderr.startswith("chainrule: ")
    assert answer.stderr.count("\n") == 1
    assert message in answer.stderr
