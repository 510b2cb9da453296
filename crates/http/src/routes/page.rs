//! The page: files that are part of the program.

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hmac_sha256::Hash;
use include_dir::{Dir, include_dir};

use super::no_such_path;
use crate::extract::Path;

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/page");

pub(super) async fn index(headers: HeaderMap) -> Response {
    serve("index.html", &headers).await
}

pub(super) async fn file(Path(path): Path<String>, headers: HeaderMap) -> Response {
    serve(&path, &headers).await
}

async fn serve(path: &str, headers: &HeaderMap) -> Response {
    let Some(file) = FILES.get_file(path) else {
        return no_such_path().await.into_response();
    };
    let content = file.contents();
    let hash = Hash::hash(content);
    let tag = format!("\"{:x}\"", u64::from_le_bytes(std::array::from_fn(|at| hash[at])));
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known == &*tag);
    let mut response = if known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, kind(path))], Bytes::from_static(content)).into_response()
    };
    let fixed = HeaderValue::from_static("no-cache");
    response.headers_mut().insert(header::CACHE_CONTROL, fixed);
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

fn kind(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        _ => "application/octet-stream",
    }
}
