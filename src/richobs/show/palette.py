"""Colours and marks that pages and figures share."""

from typing import NamedTuple

from richobs.core.events import (
    AGREED,
    ELIMINATED,
    ELIMINATED_ON_DEMAND,
    IDLE,
    IDLE_ON_DEMAND,
    OPEN,
    PASSED,
    POLICIES,
    Mark,
)

INK, BLUE, ORANGE, GREEN, SKY, RED, PINK, GREY = (
    "#222222", "#0072b2", "#e69f00", "#009e73", "#56b4e9", "#d55e00", "#cc79a7", "#8c8c8c",
)  # fmt: skip

# The page's two themes. On white ground some colours are darker than the originals, because marks and lines are thin.
LIGHT = {
    "bg": "#faf9f6", "surface": "#ffffff", "ink": "#1c1e22", "muted": "#585e68", "line": "#dedbd3", "soft": "#f0eee8",
    "accent": "#005a94", "focus": "#0072b2", "good": "#00684c", "bad": "#a83c00",
    "demand": "#9b3f76", "eliminated": "#c44f00", "tested": "#8a6a00", "agreed": "#0072b2", "other": "#00795a",
    "passed": "#767b84",
}  # fmt: skip
DARK = {
    "bg": "#131518", "surface": "#1b1e22", "ink": "#ecebe6", "muted": "#a9aeb7", "line": "#363a41", "soft": "#23272c",
    "accent": "#7cc4f2", "focus": "#56b4e9", "good": "#4fcfa6", "bad": "#ff9a63",
    "demand": "#e39ac4", "eliminated": "#f08a3c", "tested": "#e6c84a", "agreed": "#56b4e9", "other": "#3fc79a",
    "passed": "#8d939c",
}  # fmt: skip


def theme_rules() -> str:
    """Returns the style sheet's variables: the light theme, and the dark one by the system's wish or by choice."""
    light, dark = (" ".join(f"--{name}: {colour};" for name, colour in theme.items()) for theme in (LIGHT, DARK))
    return (
        f":root {{ {light} }}\n"
        f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ color-scheme: dark; {dark} }} }}\n'
        f':root[data-theme="dark"] {{ color-scheme: dark; {dark} }}\n'
    )


class Look(NamedTuple):
    """How one mark is drawn."""

    name: str  # its class in the style sheet
    shape: str  # an SVG path around (0, 0), about twelve units across
    symbol: str  # the same for matplotlib
    colour: str  # a name in the palette's themes
    hollow: bool = False  # only its rim has the colour

    @property
    def fill(self) -> str:
        """The colour of its inside in figures, on white ground."""
        return "#ffffff" if self.hollow else LIGHT[self.colour]


_CIRCLE = "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0Z"
_DIAMOND = "M0-7L7 0 0 7-7 0Z"
_STAR = "M0-7.5L2.2-2.4 7.6-2.2 3.4 1.3 4.8 6.6 0 3.6-4.8 6.6-3.4 1.3-7.6-2.2-2.2-2.4Z"
LOOKS = {
    mark: Look(mark.name, shape, symbol, colour, hollow)
    for mark, shape, symbol, colour, hollow in (
        (ELIMINATED_ON_DEMAND, _DIAMOND, "D", "demand", False),
        (IDLE_ON_DEMAND, _DIAMOND, "D", "demand", True),
        (ELIMINATED, "M-5-5H5V5H-5Z", "s", "eliminated", False),
        (IDLE, "M-6 4.5L0-6.5 6 4.5Z", "^", "tested", False),
        (OPEN, "M-6-4.5L0 6.5 6-4.5Z", "v", "ink", True),
        (AGREED, _CIRCLE, "o", "agreed", False),
        (POLICIES, _STAR, "*", "ink", False),
        (PASSED, "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0Z", "o", "passed", True),
    )
}
OTHER = Look("other", "M-6 0L-3-5.2H3L6 0 3 5.2H-3Z", "h", "other")  # a mark that a learner brings of its own


def look(mark: Mark) -> Look:
    """Returns how a mark is drawn."""
    return LOOKS.get(mark, OTHER)


def mark_rules() -> str:
    """Returns the style sheet's rules for marks."""
    rules = []
    for each in (*LOOKS.values(), OTHER):
        colour = f"var(--{each.colour})"
        drawn = f"fill: var(--surface); stroke: {colour}; stroke-width: 1.6" if each.hollow else f"fill: {colour}"
        rules.append(f".node.{each.name}, .mark.{each.name} {{ {drawn}; }}\n")
    return "".join(rules)
