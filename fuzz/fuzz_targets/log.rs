#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (holdall_fuzz_targets::target("log").run)(bytes);
});
