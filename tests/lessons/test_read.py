"""Lessons are read from Markdown, and a mistake in one is named with its file, its line and what is allowed."""

import pytest

from chainrule.errors import LessonError
from chainrule.lessons import LESSONS, read_lesson, read_lessons

TEXT = """# Waves

## One

```view
?widths=2,1#show=layers
```

Is <b>it</b> *so*?

- [ ] no
- [x] **yes**

```until
std of activation 50 between 0.1 and 1e3
```

Because.

```python
print(1)
```

## Two

Only text.
"""


def test_a_file_becomes_a_lesson():
    lesson = read_lesson("07-waves.md", TEXT)
    assert (lesson.name, lesson.title, len(lesson.steps)) == ("waves", "Waves", 2)
    one, two = lesson.steps
    assert one.view == "?widths=2,1#show=layers"
    assert one.question == "<p>Is &lt;b&gt;it&lt;/b&gt; <em>so</em>?</p>\n"
    assert [(answer.text, answer.is_right) for answer in one.answers] == [
        ("no", False),
        ("<strong>yes</strong>", True),
    ]
    assert one.until == "std of activation 50 between 0.1 and 1e3"
    assert one.explanation.startswith("<p>Because.</p>")
    assert "print(1)" in one.explanation
    assert (two.question, two.view, two.answers, two.until, two.explanation) == ("<p>Only text.</p>\n", "", (), "", "")


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("Waves.md", TEXT, "Waves.md: a lesson's file is named like 01-signal.md"),
        ("waves.md", "Waves\n\n## One\n\nText", "waves.md, line 1: a lesson begins with one line '# Title'"),
        ("waves.md", "# Waves\n", "waves.md: a lesson needs at least one step"),
        ("waves.md", TEXT.replace("[ ]", "[x]"), "waves.md, line 11: exactly one answer must be correct"),
        ("waves.md", TEXT.replace("?widths", "/?widths"), "line 6: the view '/?widths=2,1#show=layers' is not"),
        ("waves.md", TEXT.replace("widths", "width"), "line 6: width: unknown key; the keys of a spec are program, "),
        ("waves.md", TEXT.replace("2,1", "0"), "line 6: widths: "),
        (
            "waves.md",
            TEXT.replace("between 0.1 and 1e3", "is big"),
            "line 15: the condition 'std of activation 50 is b",
        ),
        ("waves.md", TEXT.replace("activation 50", "activatoin 50"), "expected one of <statistic> of <tensor> < 1;"),
        (
            "waves.md",
            TEXT.replace("std of activation 50 between 0.1 and 1e3", "spec sale is 1"),
            "did you mean 'scale'?",
        ),
        (
            "waves.md",
            TEXT.replace("until", "untill"),
            "line 14: unknown block 'untill'; expected one of view, until, p",
        ),
        ("waves.md", TEXT.replace("```python\nprint", "```until\nprint"), "line 20: a step has at most one block"),
        ("waves.md", TEXT.replace("Only text.", ""), "waves.md, line 24: a step needs a text"),
    ],
)
def test_a_mistake_is_named(file, text, words):
    with pytest.raises(LessonError) as caught:
        read_lesson(file, text)
    assert words in caught.value.message


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path):
    for name in ("02-b", "01-c"):
        (tmp_path / f"{name}.md").write_text(TEXT, encoding="utf-8")
    assert [lesson.name for lesson in read_lessons(tmp_path)] == ["c", "b"]
    (tmp_path / "03-b.md").write_text(TEXT, encoding="utf-8")
    with pytest.raises(LessonError, match="two files are named b"):
        read_lessons(tmp_path)
    with pytest.raises(LessonError, match="nowhere"):
        read_lessons(tmp_path / "nowhere")


def test_the_signal_comes_first():
    assert read_lessons(LESSONS)[0].name == "signal"
