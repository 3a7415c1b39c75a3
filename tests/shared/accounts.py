"""Work counts from the metrics, and a check that they add up."""

from collections import Counter

from prometheus_client.parser import text_string_to_metric_families

KINDS = ("request", "picture", "theory")


def accounts(metrics):
    """How much work there was by kind and end; a reason or a code is part of the end, as in `cancelled superseded`."""
    books = Counter()
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            name = sample.name.removeprefix("chainrule_work_").removesuffix("_total")
            if sample.name.startswith("chainrule_work_") and not name.endswith("_created"):
                end = " ".join([name, *(sample.labels[each] for each in ("reason", "code") if each in sample.labels)])
                books[sample.labels["kind"], end] += int(sample.value)
    return +books


def closed(metrics):
    """The books, once it is known that of each kind everything accepted has ended or is in hand."""
    books = accounts(metrics)
    for kind in KINDS:
        of_kind = {end: count for (each, end), count in books.items() if each == kind}
        accepted = of_kind.pop("accepted", 0)
        assert accepted == sum(of_kind.values()), (kind, accepted, of_kind)
    return books
