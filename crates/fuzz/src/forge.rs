//! Messages that no honest party sends: copies of real ones with something changed.

use holdall_core::RequestId;
use serde_json::Value;

use crate::random::Random;
use crate::roles::Message;

/// How many real messages are kept to copy from.
const KEPT: usize = 64;
/// Numbers at which arithmetic goes wrong.
const EXTREMES: [u64; 12] = [
    0,
    1,
    2,
    7,
    u32::MAX as u64 - 1,
    u32::MAX as u64,
    1 << 40,
    (1 << 48) - 1,
    1 << 50,
    i64::MAX as u64,
    u64::MAX - 1,
    u64::MAX,
];

/// Real messages of one kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<Value>);

impl Samples {
    /// Keeps a message to copy from, in place of an older one.
    pub(crate) fn keep(&mut self, msg: &Message, random: &mut Random) {
        let Ok(value) = msg.written() else { return };
        if self.0.len() < KEPT {
            self.0.push(value);
        } else {
            let place = random.below(KEPT);
            self.0[place] = value;
        }
    }

    /// A message with something changed, as it is written down. Mostly it speaks of a request that its
    /// receiver will listen to, or it would be seen through at once.
    pub(crate) fn forge(&self, about: RequestId, random: &mut Random) -> Option<Value> {
        let mut value = random.pick(&self.0)?.clone();
        for _ in 0..random.below(4) {
            let mut at = random.below(places(&value));
            self.change(&mut value, &mut at, random);
        }
        if random.per_mille(800)
            && let Ok(about) = serde_json::to_value(about)
        {
            set_request(&mut value, &about);
        }
        Some(value)
    }

    /// Changes the number, flag or list at some place; places are counted down to it.
    fn change(&self, value: &mut Value, at: &mut usize, random: &mut Random) -> bool {
        if is_place(value) {
            if *at == 0 {
                self.change_here(value, random);
                return true;
            }
            *at -= 1;
        }
        match value {
            Value::Object(fields) => {
                fields.values_mut().any(|field| self.change(field, at, random))
            }
            Value::Array(list) => list.iter_mut().any(|item| self.change(item, at, random)),
            _ => false,
        }
    }

    fn change_here(&self, value: &mut Value, random: &mut Random) {
        match value {
            Value::Array(list) => {
                let at = random.below(list.len());
                if random.per_mille(500) {
                    list.remove(at);
                } else {
                    list.push(list[at].clone());
                }
            }
            Value::Number(number) => {
                let old = number.as_u64().unwrap_or(0);
                *value = match random.below(6) {
                    0 => old.wrapping_add(1).into(),
                    1 => old.wrapping_sub(1).into(),
                    2 => self.any_number(random).into(),
                    _ => EXTREMES[random.below(EXTREMES.len())].into(),
                };
            }
            Value::Bool(flag) => *flag = !*flag,
            _ => {}
        }
    }

    /// A number from some real message.
    fn any_number(&self, random: &mut Random) -> u64 {
        let mut value = random.pick(&self.0);
        for _ in 0..16 {
            value = match value {
                Some(Value::Object(fields)) => fields.values().nth(random.below(fields.len())),
                Some(Value::Array(list)) => random.pick(list),
                _ => break,
            };
        }
        value.and_then(Value::as_u64).unwrap_or(0)
    }
}

/// Whether a value can be changed by itself.
fn is_place(value: &Value) -> bool {
    match value {
        Value::Array(list) => !list.is_empty(),
        Value::Number(_) | Value::Bool(_) => true,
        _ => false,
    }
}

/// How many such there are in a value.
fn places(value: &Value) -> usize {
    let within = match value {
        Value::Object(fields) => fields.values().map(places).sum(),
        Value::Array(list) => list.iter().map(places).sum(),
        _ => 0,
    };
    within + usize::from(is_place(value))
}

/// Puts this request in the place of every other. A request's id is known by its fields.
fn set_request(value: &mut Value, about: &Value) {
    match value {
        Value::Object(fields) if fields.contains_key("user") && fields.contains_key("seq") => {
            *value = about.clone();
        }
        Value::Object(fields) => fields.values_mut().for_each(|field| set_request(field, about)),
        Value::Array(list) => list.iter_mut().for_each(|item| set_request(item, about)),
        _ => {}
    }
}
