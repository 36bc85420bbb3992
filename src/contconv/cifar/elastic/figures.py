"""The measurements as pictures."""

from typing import Any

from contconv.cifar.elastic.tables import WAYS
from contconv.experiments.record import Figure

Row = dict[str, Any]
COLOURS = {way: f"C{number}" for number, way in enumerate(("early", "even", "late", "resized image", "middle"))}
LOWEST = 30  # points below the best: what is worse is not shown
MOST = 2.5  # times the original's multiply-adds: what costs more is not shown
BUDGET_WAYS = ("early", "even", "late", "resized image")


def figures(name: str, found: Row) -> tuple[Figure, ...]:
    """Those that there are measurements for; their names begin with the network's."""
    made = []
    if found.get("budgets"):
        caption = (
            "Accuracy over multiply-adds and over time (batch of 100), both relative to the original network: with "
            f"other scales inside, and with the image resized before the network. What is more than {LOWEST} points "
            "below the best is outside."
        )
        made.append(Figure(f"elastic-{name}-budgets", caption, lambda: draw_budgets(found)))
    if found.get("scales"):
        caption = (
            "Accuracy over multiply-adds, with the scale of one layer or of all three changed. What is more than "
            f"{LOWEST} points below the best, or costs more than {MOST:g} times the original, is outside."
        )
        made.append(Figure(f"elastic-{name}-scales", caption, lambda: draw_scales(found)))
    if found.get("ensembles"):
        caption = (
            "Ensembles of passes with random scales inside (mean and deviation over draws), with the original scales "
            "as one of them or without; the dotted line is one pass at the original scales."
        )
        made.append(Figure(f"elastic-{name}-ensembles", caption, lambda: draw_ensembles(found)))
    return tuple(made)


def draw_budgets(found: Row) -> Any:
    """A column for each state; multiply-adds above, time below."""
    from matplotlib import pyplot

    states, time = found["budgets"], found["latency"][max(found["latency"], key=int)]
    figure, places = pyplot.subplots(
        2, len(states), figsize=(10.5, 6.4), sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    for column, (state, rows) in enumerate(states.items()):
        for way in BUDGET_WAYS:
            chosen = sorted((row for row in rows if row["way"] in (way, origin(way))), key=lambda row: row["share"])
            heights = [row["accuracy"] for row in chosen]
            times = [time[f"{row['budget']:g}/{row['way']}"] for row in chosen]
            label = f"scales inside, {way}" if way in WAYS else way
            style: dict[str, Any] = {"color": COLOURS[way], "marker": "o", "markersize": 3.5, "label": label}
            places[0][column].plot([row["share"] for row in chosen], heights, **style)
            places[1][column].plot(times, heights, **style)
        places[0][column].set_title(state, fontsize=9)
        for place, what in zip(places[:, column], ("multiply-adds", "time, batch of 100"), strict=True):
            place.set_xlabel(f"{what} (the original's = 1)")
            place.tick_params(labelbottom=True)
            place.grid(alpha=0.15)
    for row in places:
        row[0].set_ylabel("test accuracy (%)")
    places[0][0].set_ylim(*heights_shown(states))
    figure.legend(*places[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def heights_shown(states: Row) -> tuple[float, float]:
    """The accuracies between which a picture shows what matters."""
    found = [row["accuracy"] for rows in states.values() for row in rows]
    return max(min(found) - 1, max(found) - LOWEST), max(found) + 1


def origin(way: str) -> str:
    """The row that a line shares with all others: the network as it is."""
    return "original" if way in WAYS else ""


def draw_scales(found: Row) -> Any:
    from matplotlib import pyplot

    states = found["scales"]
    figure, places = pyplot.subplots(
        1, len(states), figsize=(10.5, 4.2), sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    for place, (state, rows) in zip(places[0], states.items(), strict=True):
        origin = next(row for row in rows if row["way"] == "original")
        for way in WAYS:
            chosen = sorted([origin, *(row for row in rows if row["way"] == way)], key=lambda row: row["factor"])
            shares, heights = ([row[name] for row in chosen] for name in ("share", "accuracy"))
            place.plot(shares, heights, marker="o", markersize=3.5, color=COLOURS[way], label=way)
        place.axhline(origin["accuracy"], linewidth=0.8, linestyle=":", color="gray")
        place.set_title(state, fontsize=9)
        place.set_xlabel("multiply-adds (the original's = 1)")
        place.grid(alpha=0.15)
    places[0][0].set_ylabel("test accuracy (%)")
    places[0][0].set_ylim(*heights_shown(states))
    places[0][0].set_xlim(0, MOST)
    figure.legend(*places[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def draw_ensembles(found: Row) -> Any:
    from matplotlib import pyplot

    figure, place = pyplot.subplots(figsize=(7, 3.9), layout="constrained")
    for number, (state, one) in enumerate(found["ensembles"].items()):
        for line, name in (("--", "random"), ("-", "with the original")):
            ks, means, stds = ([row[key] for row in one[name]] for key in ("k", "mean", "std"))
            style: dict[str, Any] = {"color": f"C{number}", "linestyle": line, "marker": "o", "markersize": 3.5}
            place.errorbar(ks, means, stds, capsize=3, label=f"{state}, {name}", **style)
            place.set_xticks(ks)
        place.axhline(one["default"], linewidth=0.8, linestyle=":", color=f"C{number}")
    place.set_xlabel("passes in the ensemble")
    place.set_ylabel("test accuracy (%)")
    place.grid(alpha=0.15)
    place.legend(frameon=False, fontsize=8)
    return figure
