import pytest
from chapter_answers import asking

from chainrule.chapter.extension import MAX_BATCH, MAX_FEATURES, PAGE
from chainrule.foundations.linear_extension import extension_path
from chainrule.foundations.linear_extension.library import target_path

ask = asking(PAGE)

STYLES = ["lin, lin_grad", "LinearFunction", "LinearCpp", "F.linear"]


@pytest.mark.long
@pytest.mark.usefixtures("linear_extension")
@pytest.mark.parametrize(
    ("sizes", "bias"), [((1, 1, 1), "true"), ((64, 100, 50), "false"), ((MAX_BATCH, *[MAX_FEATURES] * 2), "true")]
)
def test_every_style_computes_the_same_to_rounding(sizes, bias):
    answer = ask(bias=bias, **dict(zip(("batch", "fan_in", "fan_out"), sizes, strict=True)))
    styles = answer["race"]["styles"]
    assert [each["name"] for each in styles] == STYLES
    for each in styles:
        assert each["available"]
        assert each["equal"], each
        assert each["forward_seconds"] > 0
        assert each["backward_seconds"] > 0
    assert answer["state"]["built"]
    assert answer["state"]["file"] == extension_path().name
    assert answer["check"]["passed"]
    assert answer["check"]["torch"]["passed"]


@pytest.mark.usefixtures("no_linear_extension")
def test_without_the_extension_the_others_race():
    answer = ask()
    assert not answer["state"]["built"]
    assert "chainrule build-extension" in answer["state"]["reason"]
    assert answer["check"] is None
    for each in answer["race"]["styles"]:
        assert each["available"] == (each["name"] != "LinearCpp")
        assert (each["forward_seconds"] is None) == (each["name"] == "LinearCpp")
    assert extension_path() is None, "no request builds it"


@pytest.mark.usefixtures("no_linear_extension")
def test_the_path_of_a_broken_library_is_only_in_the_log(tmp_path, caplog):
    path = target_path(cuda=False)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no library")
    answer = ask()
    assert (answer["state"]["built"], answer["state"]["broken"]) == (False, True)
    assert answer["state"]["reason"] == "the C++ extension does not load: run `chainrule build-extension`"
    assert str(tmp_path) not in str(answer)
    assert str(path) in caplog.text, "the log says where"


@pytest.mark.usefixtures("no_linear_extension")
def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    found = {each["name"]: each for each in ask()["requirements"]}
    assert (found["C++ compiler"]["found"], found["torch's headers"]["found"]) == (False, True)
    assert "install g++" in found["C++ compiler"]["remedy"]
