//! The functions of zenoh_session.h.

mod configuration;
mod memory;
mod publisher;
mod session;

use std::ffi::{c_char, CStr, CString};

/// The address that C code wants back in its callbacks, which it makes safe to use from any thread.
#[derive(Clone, Copy)]
struct Context(*mut std::ffi::c_void);

unsafe impl Send for Context {}
unsafe impl Sync for Context {}

/// # Safety
/// A string of C code ends with a zero byte.
unsafe fn text<'a>(from_c: *const c_char) -> std::borrow::Cow<'a, str> {
    CStr::from_ptr(from_c).to_string_lossy()
}

fn to_c(text: String) -> *mut c_char {
    CString::new(text.replace('\0', " ")).map_or(std::ptr::null_mut(), CString::into_raw)
}

/// Returns the library's message without its place in the source code.
fn without_place(message: &str) -> &str {
    message.split(" at /").next().unwrap_or_default()
}

/// Returns the value, or sets the caller's error.
unsafe fn value_or<T, E: std::fmt::Display>(
    result: Result<T, E>,
    error: *mut *mut c_char,
) -> Option<T> {
    result
        .map_err(|problem| *error = to_c(without_place(&problem.to_string()).to_owned()))
        .ok()
}

#[no_mangle]
pub unsafe extern "C" fn k8sdds_zenoh_free(text: *mut c_char) {
    if !text.is_null() {
        drop(CString::from_raw(text));
    }
}
