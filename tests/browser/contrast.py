"""The contrast of letters and what lies behind them, as WCAG 2.2 counts it, where grounds may be translucent."""

import re

#: A function of JavaScript: the grounds behind an element as CSS colours, the nearest first, down to an opaque one or the root.
GROUNDS = """(element => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
        const colour = getComputedStyle(each).backgroundColor;
        if (colour !== 'rgba(0, 0, 0, 0)') layers.push(colour);
        if (colour.startsWith('rgb(')) break;
    }
    return layers;
})"""


def parts(colour):
    """Red, green and blue from 0 to 255, and the opacity from 0 to 1, of `rgb(...)`, `rgba(...)` or `#rrggbb` (`#rgb`)."""
    if colour.startswith("#"):
        digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
        return [int(digits[place : place + 2], 16) for place in (0, 2, 4)], 1.0
    *rgb, opacity = [float(number) for number in re.findall(r"[\d.]+", colour)] + ([] if colour.startswith("rgba") else [1.0])
    return rgb, opacity


def laid_over(layers, canvas):
    """What is seen of layers of CSS colours, the uppermost first, on an opaque canvas: red, green and blue."""
    seen = parts(canvas)[0]
    for layer in reversed(layers):
        rgb, opacity = parts(layer)
        seen = [opacity * above + (1 - opacity) * below for above, below in zip(rgb, seen, strict=True)]
    return seen


def luminance(rgb):
    """Relative luminance, from 0 to 1."""
    shares = (value / 255 for value in rgb)
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(ink, ground):
    """The ratio of two colours, each red, green and blue, from 1 to 21; WCAG AA wants 4.5 of text."""
    low, high = sorted((luminance(ink), luminance(ground)))
    return (high + 0.05) / (low + 0.05)
