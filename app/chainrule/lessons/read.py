"""From a folder of Markdown files to lessons.

`# Title`, then a step under each `## Heading`: a block ```` ```view ```` with the address that the step opens, text, a
list of answers (`- [ ]`, and `- [x]` for the right one), a block ```` ```until ```` with the condition that ends the
step, and the explanation, which is shown when the step is done.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

from chainrule.errors import LessonError, SpecError
from chainrule.spec import ModelSpec
from chainrule.spec.values import unknown_key

LESSONS = Path(__file__).parent
"""The folder of the lessons that come with the package."""

FILE = re.compile(r"(?:\d+-)?([a-z][a-z0-9-]*)\.md")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)
BLOCKS = ("view", "until", "python", "text")
"""The words that may stand after ```` ``` ````; the last two are code for the reader."""

ANSWER = re.compile(r"^- \[([ x])\] (.+)\n?", re.MULTILINE)
NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
CONDITION = re.compile(
    r"(?:(?:mean|std|min|max|norm|zero_fraction|dead_fraction|saturation|nan|inf) of "
    r"(?:(?:activation|preactivation|gradient|weight|weight_gradient) \d+|[\w.∇:/-]+)"
    rf" (?:[<>] {NUMBER}|between {NUMBER} and {NUMBER})"
    r"|(?:spec (?P<key>[a-z_]+)|view [a-z_]+) is \S+)"
)
CONDITION_FORMS = (
    "<statistic> of <tensor> < 1",
    "<statistic> of <tensor> > 1",
    "<statistic> of <tensor> between 0.1 and 10, where <tensor> is like l2 or activation 50",
    "spec <key> is <value>",
    "view <key> is <value>",
)

MARKDOWN = MarkdownIt("commonmark", {"html": False})


@dataclass(frozen=True, slots=True)
class Answer:
    """One of the answers to a step's question, as HTML."""

    text: str
    is_right: bool


@dataclass(frozen=True, slots=True)
class Step:
    """`view` is an address of the explorer from its `?` on, "" to stay; `question` and `explanation` are HTML."""

    title: str
    view: str
    question: str
    answers: tuple[Answer, ...]
    until: str
    explanation: str


@dataclass(frozen=True, slots=True)
class Lesson:
    """`name` is the file's, without number and ending; it stands in addresses."""

    name: str
    title: str
    steps: tuple[Step, ...]


def read_lessons(folder: Path) -> tuple[Lesson, ...]:
    """The lessons of a folder, by the order of its file names.

    Raises:
        LessonError: the folder or a file cannot be read, or is no lesson.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".md")
        texts = [path.read_text(encoding="utf-8") for path in paths]
    except (OSError, UnicodeDecodeError) as error:
        raise LessonError(f"{folder}: {getattr(error, 'strerror', None) or error}") from None
    lessons = [read_lesson(path.name, text) for path, text in zip(paths, texts, strict=True)]
    names = [lesson.name for lesson in lessons]
    for lesson in lessons:
        if names.count(lesson.name) > 1:
            raise LessonError(f"{folder}: two files are named {lesson.name}")
    return tuple(lessons)


@cache
def read_lesson(file: str, text: str) -> Lesson:
    """Read one lesson.

    Raises:
        LessonError: names the file, the line and the allowed form.
    """
    named = FILE.fullmatch(file)
    if named is None:
        raise LessonError(f"{file}: a lesson's file is named like 01-signal.md")
    head, *sections = re.split(r"^## ", text.replace("\r\n", "\n"), flags=re.MULTILINE)
    titled = re.fullmatch(r"# (.+)\s*", head)
    if titled is None:
        raise LessonError(f"{file}, line 1: a lesson begins with one line '# Title', and its first step '## Heading'")
    if not sections:
        raise LessonError(f"{file}: a lesson needs at least one step, which begins with '## Heading'")
    line = 1 + head.count("\n")
    steps = []
    for section in sections:
        steps.append(_read_step(file, line, section))
        line += section.count("\n")
    return Lesson(named[1], titled[1], tuple(steps))


def _read_step(file: str, line: int, section: str) -> Step:
    """Read one step; `line` is the line of its heading."""

    def mistake(at: int, text: str) -> LessonError:
        return LessonError(f"{file}, line {line + section.count(chr(10), 0, at)}: {text}")

    title, _, body = section.partition("\n")
    blocks: dict[str, str] = {}
    for found in BLOCK.finditer(section):
        kind, content = found[1], found[2].strip()
        if kind and kind not in BLOCKS:
            raise mistake(found.start(), f"unknown block {kind!r}; expected one of {', '.join(BLOCKS)}")
        if kind in blocks and kind in ("view", "until"):
            raise mistake(found.start(), f"a step has at most one block '{kind}'")
        blocks[kind] = content
        problem = _problem(kind, content)
        if problem is not None:
            raise mistake(found.start(2), problem)
    answers = list(ANSWER.finditer(section))
    if answers and sum(answer[1] == "x" for answer in answers) != 1:
        raise mistake(answers[0].start(), "exactly one answer must be correct, written as '- [x] …'")
    question, explanation = _around(body, bool(answers), "until" in blocks)
    if not question.strip():
        raise mistake(0, "a step needs a text")
    choices = tuple(Answer(MARKDOWN.renderInline(answer[2]), answer[1] == "x") for answer in answers)
    return Step(title.strip(), blocks.get("view", ""), question, choices, blocks.get("until", ""), explanation)


def _problem(kind: str, content: str) -> str | None:
    """A mistake that needs no picture to be found; the page names unknown tensors and unknown parts of the view."""
    if kind == "view":
        if not re.fullmatch(r"[?#]\S+", content):
            return f"the view {content!r} is not an address that begins with ? or #"
        try:
            ModelSpec.from_query(content.partition("#")[0].removeprefix("?"))
        except SpecError as error:
            return error.message
    if kind == "until":
        condition = CONDITION.fullmatch(content)
        if condition is None:
            return f"the condition {content!r} is not supported; expected one of {'; '.join(CONDITION_FORMS)}"
        if condition["key"] is not None and condition["key"] not in ModelSpec.model_fields:
            return str(unknown_key(condition["key"], ModelSpec.model_fields, "a spec")["message"])
    return None


def _around(body: str, has_answers: bool, has_condition: bool) -> tuple[str, str]:
    """The texts before the answers or the condition, and after the last of them; other blocks of code stay."""
    mark = "\0"
    marked = BLOCK.sub(lambda match: {"view": "", "until": mark}.get(match[1], match[0]), body)
    marked = ANSWER.sub(mark, marked)
    if not (has_answers or has_condition):
        return MARKDOWN.render(marked), ""
    parts = marked.split(mark)
    between: Sequence[str] = [part for part in parts[1:-1] if part.strip()]
    return MARKDOWN.render("\n\n".join([parts[0], *between])), MARKDOWN.render(parts[-1])
