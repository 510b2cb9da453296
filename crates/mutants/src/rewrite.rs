//! Rewrites a file so that every change worth trying is in it, each behind a number.

use proc_macro2::Span;
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Attribute, BinOp, Block, Expr, Ident, Item, ReturnType, Signature, Stmt, UnOp, parse_quote,
};

/// What says of itself what it is, and what is looked at rather than what looks.
const LEFT_OUT: [&str; 5] = ["about", "check", "check_system", "is_stale", "stage"];

/// A change.
#[derive(Clone, Debug)]
pub(crate) struct Mutant {
    pub(crate) number: usize,
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) function: String,
    pub(crate) change: String,
}

/// Goes through files, one after the other.
pub(crate) struct Rewriter<'a> {
    pub(crate) file: String,
    function: String,
    /// Above 0 where nothing can be looked up at run time.
    constant: u32,
    /// The numbers of those that do not compile.
    skip: &'a [usize],
    last: usize,
    pub(crate) mutants: Vec<Mutant>,
}

impl<'a> Rewriter<'a> {
    pub(crate) fn new(skip: &'a [usize]) -> Self {
        let (file, function) = (String::new(), String::new());
        Self { file, function, constant: 0, skip, last: 0, mutants: Vec::new() }
    }

    /// The text of a file with all changes in it.
    pub(crate) fn rewrite(&mut self, file: &str, text: &str) -> syn::Result<String> {
        self.file = file.into();
        let mut parsed = syn::parse_file(text)?;
        self.visit_file_mut(&mut parsed);
        Ok(prettyplease::unparse(&parsed))
    }

    /// Makes a change known; returns the condition under which it is in force.
    fn change(&mut self, at: Span, change: String) -> Expr {
        self.last += 1;
        let number = self.last;
        if self.skip.contains(&number) {
            return parse_quote!(false);
        }
        let (file, function) = (self.file.clone(), self.function.clone());
        let line = at.start().line;
        self.mutants.push(Mutant { number, file, line, function, change });
        parse_quote!(crate::mutant::is(#number))
    }

    fn within(&mut self, signature: &Signature, block: &mut Block) {
        let outer = std::mem::replace(&mut self.function, signature.ident.to_string());
        let constant = u32::from(signature.constness.is_some());
        self.constant += constant;
        self.visit_block_mut(block);
        if self.constant == 0 {
            self.return_early(signature, block);
        }
        self.constant -= constant;
        self.function = outer;
    }

    fn return_early(&mut self, signature: &Signature, block: &mut Block) {
        let values: Vec<Expr> = match &signature.output {
            ReturnType::Default => vec![parse_quote!(())],
            ReturnType::Type(_, of) => match of.to_token_stream().to_string().as_str() {
                "bool" => vec![parse_quote!(true), parse_quote!(false)],
                "u8" | "u32" | "u64" | "usize" => vec![parse_quote!(0), parse_quote!(1)],
                of if of.starts_with("Option <") => vec![parse_quote!(None)],
                of if of.starts_with("Vec <") => vec![parse_quote!(Default::default())],
                _ => return,
            },
        };
        for value in values {
            let on = self.change(signature.span(), format!("returns {}", short(&value)));
            block.stmts.insert(0, parse_quote!(if #on { return #value; }));
        }
    }

    /// A condition is true, or false.
    fn decide(&mut self, condition: &mut Expr, was: &Expr) {
        if has_let(was) || self.constant > 0 {
            return;
        }
        let on = self.change(was.span(), format!("true: {}", short(was)));
        let off = self.change(was.span(), format!("false: {}", short(was)));
        let old = condition.clone();
        *condition = parse_quote!((#on || (!#off && (#old))));
    }

    fn binary(&mut self, expr: &mut Expr, was: &Expr) {
        let Expr::Binary(binary) = expr else { return };
        let others: Vec<BinOp> = match binary.op {
            BinOp::Eq(_) => vec![parse_quote!(!=)],
            BinOp::Ne(_) => vec![parse_quote!(==)],
            BinOp::Lt(_) => vec![parse_quote!(<=), parse_quote!(>)],
            BinOp::Le(_) => vec![parse_quote!(<), parse_quote!(>)],
            BinOp::Gt(_) => vec![parse_quote!(>=), parse_quote!(<)],
            BinOp::Ge(_) => vec![parse_quote!(>), parse_quote!(<)],
            BinOp::And(_) => vec![parse_quote!(||)],
            BinOp::Or(_) => vec![parse_quote!(&&)],
            BinOp::Add(_) => vec![parse_quote!(-)],
            BinOp::Sub(_) => vec![parse_quote!(+)],
            _ => return,
        };
        if has_let(&binary.left) || has_let(&binary.right) {
            return;
        }
        let (left, right, op) = (&binary.left, &binary.right, binary.op);
        let mut new: Expr = parse_quote!((#left) #op (#right));
        for other in others {
            let change = format!("{} for {}: {}", text(&other), text(&op), short(was));
            let on = self.change(op.span(), change);
            new = parse_quote!(if #on { (#left) #other (#right) } else { #new });
        }
        *expr = parse_quote!((#new));
    }

    fn exchange(&mut self, expr: &mut Expr, was: &Expr) {
        let Expr::MethodCall(call) = expr else { return };
        let name = call.method.to_string();
        let other = match (name.as_str(), call.args.len()) {
            ("max", 1) => "min",
            ("min", 1) => "max",
            ("any", 1) => "all",
            ("all", 1) => "any",
            _ => return,
        };
        let on = self.change(call.method.span(), format!("{other} for {name}: {}", short(was)));
        let mut new = call.clone();
        new.method = Ident::new(other, Span::call_site());
        *expr = parse_quote!((if #on { #new } else { #call }));
    }
}

impl VisitMut for Rewriter<'_> {
    fn visit_item_mut(&mut self, item: &mut Item) {
        match item {
            Item::Mod(module) if is_test(&module.attrs) => {}
            Item::Const(_) | Item::Static(_) | Item::Macro(_) => {}
            Item::Impl(of) if of.trait_.as_ref().is_some_and(|(_, path, _)| is_shown(path)) => {}
            _ => visit_mut::visit_item_mut(self, item),
        }
    }

    fn visit_item_fn_mut(&mut self, function: &mut syn::ItemFn) {
        if !is_test(&function.attrs) {
            self.within(&function.sig.clone(), &mut function.block);
        }
    }

    fn visit_impl_item_fn_mut(&mut self, function: &mut syn::ImplItemFn) {
        let left_out = LEFT_OUT.contains(&function.sig.ident.to_string().as_str());
        if !is_test(&function.attrs) && !left_out {
            self.within(&function.sig.clone(), &mut function.block);
        }
    }

    fn visit_trait_item_fn_mut(&mut self, _: &mut syn::TraitItemFn) {}
    fn visit_impl_item_const_mut(&mut self, _: &mut syn::ImplItemConst) {}
    fn visit_type_mut(&mut self, _: &mut syn::Type) {}
    fn visit_pat_mut(&mut self, _: &mut syn::Pat) {}
    fn visit_attribute_mut(&mut self, _: &mut Attribute) {}

    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        let was = expr.clone();
        visit_mut::visit_expr_mut(self, expr);
        if self.constant > 0 {
            return;
        }
        match (&mut *expr, &was) {
            (Expr::If(new), Expr::If(was)) => self.decide(&mut new.cond, &was.cond),
            (Expr::Binary(_), _) => self.binary(expr, &was),
            (Expr::Unary(unary), _) if matches!(unary.op, UnOp::Not(_)) => {
                let inner = &unary.expr;
                let on = self.change(was.span(), format!("no !: {}", short(&was)));
                *expr = parse_quote!((if #on { !!(#inner) } else { !(#inner) }));
            }
            (Expr::MethodCall(_), _) => self.exchange(expr, &was),
            _ => {}
        }
    }

    fn visit_arm_mut(&mut self, arm: &mut syn::Arm) {
        let was = arm.guard.as_ref().map(|(_, guard)| (**guard).clone());
        visit_mut::visit_arm_mut(self, arm);
        if let (Some((_, guard)), Some(was)) = (&mut arm.guard, was) {
            self.decide(guard, &was);
        }
    }

    fn visit_block_mut(&mut self, block: &mut Block) {
        let was = block.stmts.clone();
        visit_mut::visit_block_mut(self, block);
        if self.constant > 0 {
            return;
        }
        for (stmt, was) in block.stmts.iter_mut().zip(&was) {
            let Stmt::Expr(expr, Some(_)) = stmt else { continue };
            if can_go(expr) && !short(was).contains("tally(") {
                let on = self.change(was.span(), format!("without {}", short(was)));
                // What is moved on a condition only is borrowed for longer, whatever the condition.
                if !matches!(on, Expr::Lit(_)) {
                    let old = expr.clone();
                    *stmt = parse_quote!(if !#on { #old; });
                }
            }
        }
    }
}

/// Whether a statement can be left out.
fn can_go(expr: &Expr) -> bool {
    match expr {
        Expr::MethodCall(_) | Expr::Call(_) | Expr::Assign(_) | Expr::Try(_) => true,
        Expr::Binary(binary) => matches!(
            binary.op,
            BinOp::AddAssign(_)
                | BinOp::SubAssign(_)
                | BinOp::BitAndAssign(_)
                | BinOp::BitOrAssign(_)
        ),
        _ => false,
    }
}

fn has_let(expr: &Expr) -> bool {
    struct Finder(bool);
    impl VisitMut for Finder {
        fn visit_expr_let_mut(&mut self, _: &mut syn::ExprLet) {
            self.0 = true;
        }
        fn visit_block_mut(&mut self, _: &mut Block) {}
        fn visit_expr_closure_mut(&mut self, _: &mut syn::ExprClosure) {}
    }
    let mut finder = Finder(false);
    finder.visit_expr_mut(&mut expr.clone());
    finder.0
}

/// Whether it is about how values are shown, or hashed.
fn is_shown(path: &syn::Path) -> bool {
    let name = path.segments.last().map(|segment| segment.ident.to_string());
    name.is_some_and(|name| ["Debug", "Display", "Hash"].contains(&name.as_str()))
}

fn is_test(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| attr.path().is_ident("cfg") && text(&attr.meta).contains("test"))
}

fn text(tokens: &impl ToTokens) -> String {
    tokens.to_token_stream().to_string()
}

/// At most 90 characters of code.
fn short(tokens: &impl ToTokens) -> String {
    let tight = [(" . ", "."), (" (", "("), (" :: ", "::"), (" , ", ", "), (" ;", ";")];
    let text = tight.iter().fold(text(tokens), |text, (from, to)| text.replace(from, to));
    text.chars().take(90).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_behind_a_number() {
        let text = "fn f(a: u32) -> bool { if a < 3 { g(a); } !h(a) && a.max(1) == 2 }";
        let mut rewriter = Rewriter::new(&[2]);
        let new = rewriter.rewrite("f.rs", text).expect("Rust");
        let changes: Vec<_> = rewriter.mutants.iter().map(|m| m.change.as_str()).collect();
        let expected = [
            "<= for <: a < 3",
            "without g(a);",
            "true: a < 3",
            "false: a < 3",
            "no !: ! h(a)",
            "min for max: a.max(1)",
            "!= for ==: a.max(1) == 2",
            "|| for &&: ! h(a) && a.max(1) == 2",
            "returns true",
            "returns false",
        ];
        assert_eq!(changes, expected, "and the second is skipped");
        for mutant in rewriter.mutants {
            assert!(new.contains(&format!("crate::mutant::is({}usize)", mutant.number)), "{new}");
        }
        syn::parse_file(&new).expect("Rust");
    }

    #[test]
    fn what_runs_at_compile_time_and_tests_are_left_alone() {
        let text = "const fn f() -> bool { 1 < 2 } #[cfg(test)] mod tests { fn g() { h(); } }";
        let mut rewriter = Rewriter::new(&[]);
        rewriter.rewrite("f.rs", text).expect("Rust");
        assert!(rewriter.mutants.is_empty());
    }
}
