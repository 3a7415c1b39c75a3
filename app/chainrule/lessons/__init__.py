"""Lessons: steps beside the live picture, each a question, a change and an explanation. A file is a lesson."""

from chainrule.lessons.read import LESSONS, Answer, Lesson, Step, read_lesson, read_lessons

__all__ = ["LESSONS", "Answer", "Lesson", "Step", "read_lesson", "read_lessons"]
