//! In the language of Graphviz.

use std::fmt::Write as _;

use super::{Mark, StateGraph};

impl StateGraph {
    /// The graph in the language of Graphviz: `dot -Tsvg` draws it. A node's tooltip says what is in
    /// the state.
    pub fn dot(&self) -> String {
        let mut text = format!(
            "digraph states {{\n  label={};\n  labelloc=t;\n  node [shape=circle];\n",
            quoted(&self.title)
        );
        for (number, node) in self.nodes.iter().enumerate() {
            let look = match node.mark {
                Mark::Plain => "",
                Mark::End => ", shape=doublecircle",
                Mark::Wrong => ", shape=doublecircle, color=red",
            };
            let _ = writeln!(text, "  {number} [tooltip={}{look}];", quoted(&node.state));
        }
        for edge in &self.edges {
            let look = if edge.breaks { ", color=red" } else { "" };
            let label = quoted(&edge.what);
            let _ = writeln!(text, "  {} -> {} [label={label}{look}];", edge.from, edge.to);
        }
        text.push_str("}\n");
        text
    }
}

fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}
