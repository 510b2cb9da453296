//! Just enough SVG.

use std::fmt::{Display, Write as _};

/// A document that is being written. All coordinates are pixels, from the upper left corner.
#[derive(Debug)]
pub(crate) struct Svg(String);

/// Attributes of an element.
pub(crate) type Attributes<'a> = &'a [(&'a str, &'a dyn Display)];

impl Svg {
    pub(crate) fn new(width: f64, height: f64, title: &str, style: &str) -> Self {
        let mut svg = Self(String::new());
        svg.open(
            "svg",
            &[
                ("xmlns", &"http://www.w3.org/2000/svg"),
                ("viewBox", &format!("0 0 {width} {height}")),
                ("width", &width),
                ("height", &height),
                ("role", &"img"),
            ],
            ">\n",
        );
        svg.content("title", &[], title);
        svg.content("style", &[], style);
        svg.leaf("rect", &[("width", &width), ("height", &height), ("fill", &"#fff")]);
        svg
    }

    /// An element without content.
    pub(crate) fn leaf(&mut self, tag: &str, attributes: Attributes<'_>) {
        self.open(tag, attributes, "/>\n");
    }

    /// An element with text in it.
    pub(crate) fn content(&mut self, tag: &str, attributes: Attributes<'_>, text: &str) {
        self.open(tag, attributes, ">");
        self.escaped(text);
        self.0.push_str(&format!("</{tag}>\n"));
    }

    /// Text of a class of the style.
    pub(crate) fn text(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        self.content("text", &[("class", &class), ("x", &Pixels(x)), ("y", &Pixels(y))], text);
    }

    /// A straight line of a class of the style.
    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.leaf("path", &[("class", &class), ("d", &path([from, to], false))]);
    }

    /// A circle of a class of the style, with a tooltip.
    pub(crate) fn circle(&mut self, class: &str, (x, y): (f64, f64), radius: f64, tooltip: &str) {
        let place: Attributes<'_> =
            &[("class", &class), ("cx", &Pixels(x)), ("cy", &Pixels(y)), ("r", &Pixels(radius))];
        self.open("circle", place, ">");
        self.content("title", &[], tooltip);
        self.0.push_str("</circle>\n");
    }

    pub(crate) fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }

    fn open(&mut self, tag: &str, attributes: Attributes<'_>, end: &str) {
        self.0.push('<');
        self.0.push_str(tag);
        for (name, value) in attributes {
            self.0.push_str(&format!(" {name}=\""));
            self.escaped(&value.to_string());
            self.0.push('"');
        }
        self.0.push_str(end);
    }

    fn escaped(&mut self, text: &str) {
        for char in text.chars() {
            match char {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                _ => self.0.push(char),
            }
        }
    }
}

/// A length, to the tenth: finer is not seen, and the files stay small and alike everywhere.
pub(crate) struct Pixels(pub(crate) f64);

impl Display for Pixels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenths = (self.0 * 10.0).round() / 10.0;
        write!(f, "{}", if tenths == 0.0 { 0.0 } else { tenths })
    }
}

/// The data of a path through these places.
pub(crate) fn path(places: impl IntoIterator<Item = (f64, f64)>, closed: bool) -> String {
    let mut data = String::new();
    for (x, y) in places {
        let command = if data.is_empty() { "M" } else { " L" };
        write!(data, "{command}{} {}", Pixels(x), Pixels(y)).expect("a string takes everything");
    }
    if closed {
        data.push_str(" Z");
    }
    data
}
