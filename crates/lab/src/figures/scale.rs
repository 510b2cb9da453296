//! From values to places on an axis.

/// An axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    logarithmic: bool,
    low: f64,
    high: f64,
    /// Where the low and the high end are, in pixels.
    ends: (f64, f64),
}

/// The steps in which people count.
const STEPS: [f64; 3] = [1.0, 2.0, 5.0];

impl Scale {
    /// From 0 up to a round number that is not below any value.
    pub(super) fn linear(values: &[f64], ends: (f64, f64)) -> Self {
        let most = values.iter().copied().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let step = step(most);
        let high = (most / step - 1e-9).ceil() * step;
        Self { logarithmic: false, low: 0.0, high, ends }
    }

    /// Between round numbers around all values above 0.
    pub(super) fn logarithmic(values: &[f64], ends: (f64, f64)) -> Self {
        let positive = values.iter().copied().filter(|value| *value > 0.0);
        let (least, most) =
            positive.fold((f64::INFINITY, 0.0), |(least, most), v| (v.min(least), v.max(most)));
        if most == 0.0 {
            return Self { logarithmic: true, low: 1.0, high: 10.0, ends };
        }
        let rounds = || round_numbers(least / 10.0, most * 10.0);
        let low = rounds().filter(|round| *round <= least * 1.0001).fold(least / 10.0, f64::max);
        let high = rounds().filter(|round| *round >= most * 0.9999).fold(most * 10.0, f64::min);
        Self { logarithmic: true, low, high: if high > low { high } else { low * 10.0 }, ends }
    }

    /// Where a value is; at the end of the axis if it is beyond it.
    pub(super) fn place(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let share = if self.logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.ends.0 + share * (self.ends.1 - self.ends.0)
    }

    /// Whether it has a place for a value.
    pub(super) fn shows(&self, value: f64) -> bool {
        !self.logarithmic || value > 0.0
    }

    /// The values to write at the axis.
    pub(super) fn marks(&self) -> Vec<f64> {
        if self.logarithmic {
            return round_numbers(self.low * 0.9999, self.high * 1.0001).collect();
        }
        let step = step(self.high);
        (0..=(self.high / step).round() as u32).map(|n| f64::from(n) * step).collect()
    }
}

/// A round step of which about five to ten make up the whole.
fn step(most: f64) -> f64 {
    round_numbers(most / 100.0, most).find(|step| most / step <= 8.0).unwrap_or(most)
}

/// 1, 2, 5, 10, 20 and so on, between these.
fn round_numbers(low: f64, high: f64) -> impl Iterator<Item = f64> {
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    decades
        .flat_map(|decade| STEPS.map(|step| step * 10f64.powi(decade)))
        .filter(move |round| (low..=high).contains(round))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_ends_and_marks() {
        let scale = Scale::linear(&[3.0, 66.0], (0.0, 100.0));
        assert_eq!(scale.marks(), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0]);
        assert_eq!((scale.place(35.0), scale.place(99.0)), (50.0, 100.0));
        let scale = Scale::logarithmic(&[0.0, 0.9, 66.0], (100.0, 0.0));
        assert_eq!(scale.marks(), [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert!(!scale.shows(0.0) && scale.place(0.5) == 100.0 && scale.place(100.0) == 0.0);
    }

    #[test]
    fn axes_of_nothing() {
        for values in [vec![], vec![0.0], vec![7.0]] {
            let linear = Scale::linear(&values, (0.0, 1.0));
            let logarithmic = Scale::logarithmic(&values, (0.0, 1.0));
            assert!((0.0..=1.0).contains(&linear.place(7.0)), "{values:?}");
            assert!((0.0..=1.0).contains(&logarithmic.place(7.0)), "{values:?}");
        }
    }
}
