"""Colours that colour-blind readers can tell apart (Okabe and Ito's), named by what they are used for."""

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
