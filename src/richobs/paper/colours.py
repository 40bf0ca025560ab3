"""Colours that stay apart for colour-blind readers (Okabe and Ito 2008)."""

BLUE, SKY, GREEN, ORANGE, RED, PURPLE, GREY = (
    "#0072B2",
    "#56B4E9",
    "#009E73",
    "#E69F00",
    "#D55E00",
    "#CC79A7",
    "#999999",
)
