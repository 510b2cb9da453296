//! Names that are easily taken for each other.

/// Whether two different names are so alike that one may be meant for the other: they differ in case or
/// punctuation, or by one letter that is wrong, missing or too many, or by two that have changed places. Names that
/// differ in digits are a series (`gpu1`, `gpu2`).
pub(super) fn resemble(one: &str, other: &str) -> bool {
    if one == other || one.len().abs_diff(other.len()) > 1 || one.len().min(other.len()) < 3 {
        return false;
    }
    let plain = |text: &str| -> Vec<u8> {
        let letter = |byte: u8| if byte.is_ascii_alphanumeric() { byte } else { b'-' };
        text.bytes().map(|byte| letter(byte.to_ascii_lowercase())).collect()
    };
    let (one, other) = (plain(one), plain(other));
    let same = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
    let (one, other) = (&one[same..], &other[same..]);
    let same = one.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    match (&one[..one.len() - same], &other[..other.len() - same]) {
        ([], []) => true,
        ([a], [b]) => !(a.is_ascii_digit() && b.is_ascii_digit()),
        ([a], []) | ([], [a]) => !a.is_ascii_digit(),
        ([a, b], [c, d]) => a == d && b == c && !(a.is_ascii_digit() || b.is_ascii_digit()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_alike_and_series_are_not() {
        for (one, other) in [
            ("board", "baord"),
            ("board", "boards"),
            ("board", "bord"),
            ("board", "Board"),
            ("lab-db", "lab_db"),
            ("licence", "license"),
        ] {
            assert!(resemble(one, other) && resemble(other, one), "{one} {other}");
        }
        for (one, other) in [
            ("board", "board"),
            ("gpu1", "gpu2"),
            ("gpu", "gpu2"),
            ("gpu12", "gpu21"),
            ("a", "b"),
            ("db", "dc"),
            ("board", "scope"),
            ("lab/a", "lab/abc"),
        ] {
            assert!(!resemble(one, other) && !resemble(other, one), "{one} {other}");
        }
    }
}
