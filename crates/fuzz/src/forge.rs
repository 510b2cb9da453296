//! Messages that no honest party sends: copies of real ones with something changed.

use holdall_core::UserId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::random::Random;

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
    pub(crate) fn keep(&mut self, msg: &impl Serialize, random: &mut Random) {
        let Ok(value) = serde_json::to_value(msg) else { return };
        if self.0.len() < KEPT {
            self.0.push(value);
        } else {
            let place = random.below(KEPT);
            self.0[place] = value;
        }
    }

    /// A message with something changed, if it is still one. Mostly it speaks of the sender's own
    /// requests, or it would be seen through at once.
    pub(crate) fn forge<M: DeserializeOwned>(
        &self,
        sender: Option<UserId>,
        random: &mut Random,
    ) -> Option<M> {
        let mut value = random.pick(&self.0)?.clone();
        if random.per_mille(700)
            && let Some(own) = sender.and_then(|own| serde_json::to_value(own).ok())
        {
            claim(&mut value, &own);
        }
        for _ in 0..random.below(4) {
            self.change(&mut value, random);
        }
        serde_json::from_value(value).ok()
    }

    /// Changes one leaf or list, at any depth.
    fn change(&self, value: &mut Value, random: &mut Random) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                let at = random.below(fields.len());
                if let Some(field) = fields.values_mut().nth(at) {
                    self.change(field, random);
                }
            }
            Value::Array(list) if !list.is_empty() => {
                let at = random.below(list.len());
                match random.below(6) {
                    0 => drop(list.remove(at)),
                    1 => list.push(list[at].clone()),
                    _ => self.change(&mut list[at], random),
                }
            }
            Value::Number(number) => {
                let old = number.as_u64().unwrap_or(0);
                *value = match random.below(4) {
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

/// Puts one's own id in the place of every user's. A user id is known by its fields.
fn claim(value: &mut Value, own: &Value) {
    match value {
        Value::Object(fields) if fields.contains_key("home") && fields.contains_key("local") => {
            *value = own.clone();
        }
        Value::Object(fields) => fields.values_mut().for_each(|field| claim(field, own)),
        Value::Array(list) => list.iter_mut().for_each(|item| claim(item, own)),
        _ => {}
    }
}
