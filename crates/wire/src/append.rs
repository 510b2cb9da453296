//! What postcard makes of a value, at the end of other bytes.

use postcard::ser_flavors::Flavor;
use serde::Serialize;

/// Appends a value. [`postcard::to_extend`] hands texts over as iterators over their bytes, this as slices.
///
/// # Errors
/// If the value cannot be written. Some of it is appended by then.
pub fn append<T: Serialize + ?Sized>(value: &T, bytes: &mut Vec<u8>) -> postcard::Result<()> {
    postcard::serialize_with_flavor(value, End(bytes))
}

/// The end of a buffer.
struct End<'a>(&'a mut Vec<u8>);

impl Flavor for End<'_> {
    type Output = ();

    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        match data {
            // Mostly a number of one byte.
            [one] => self.0.push(*one),
            _ => self.0.extend_from_slice(data),
        }
        Ok(())
    }

    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.0.push(data);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}
