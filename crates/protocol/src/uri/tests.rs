//! Which URIs parse, which native paths they mean, and that every normalised native path survives a round trip.

use super::*;
use proptest::prelude::*;

fn native(text: &str) -> Result<PathBuf, String> {
    text.parse::<PathUri>().and_then(|uri| uri.to_native()).map_err(|error| error.to_string())
}

#[test]
fn different_spellings_of_a_path_are_equal() {
    for text in
        ["FILE:///w", "file:/w", "file://localhost/w", "file://LOCALHOST/w", "file:///x/../w", "file:///%2e%2e/w"]
    {
        assert_eq!(text.parse::<PathUri>().unwrap().as_str(), "file:///w", "{text}");
    }
}

#[test]
fn a_native_path_has_no_escapes_no_dot_segments_and_no_slash_at_its_end() {
    assert_eq!(native("file:///tmp/a%20b"), Ok("/tmp/a b".into()));
    assert_eq!(native("file:///tmp/100%25"), Ok("/tmp/100%".into()));
    assert_eq!(native("file:///tmp/a%3Fb%23c"), Ok("/tmp/a?b#c".into()));
    assert_eq!(native("file:///tmp/a%2F..%2Fb"), Ok("/tmp/b".into()));
    assert_eq!(native("file:///tmp/dir/"), Ok("/tmp/dir".into()));
    assert_eq!(native("file:///tmp/%FF").unwrap().as_os_str().as_bytes(), b"/tmp/\xff");
}

#[test]
fn invalid_uris_are_refused_with_the_published_texts() {
    let refused = [
        ("/tmp/x", "invalid URI: relative URL without a base"),
        ("src/x", "invalid URI: relative URL without a base"),
        (r"C:\x", "unsupported path URI scheme `c`"),
        ("http://a/b", "unsupported path URI scheme `http`"),
        ("file:///a?b", "query parameters are not allowed in path URIs"),
        ("file:///a#b", "fragments are not allowed in path URIs"),
        ("file:///a%00b", "'file:///a%00b' is invalid on 'linux'"),
        ("file:///%00/bad/path/", "'file:///%00/bad/path/' is invalid on 'linux'"),
        ("file:///%00/bad/path/YQ==", "'file:///%00/bad/path/YQ==' is invalid on 'linux'"),
        ("file:///%00/bad/path/YQ/x", "'file:///%00/bad/path/YQ/x' is invalid on 'linux'"),
    ];
    for (text, words) in refused {
        assert_eq!(text.parse::<PathUri>().unwrap_err().to_string(), words, "{text}");
    }
}

#[test]
fn windows_paths_parse_but_have_no_native_path() {
    for (text, canonical) in
        [("file:///c:/Users/x", "file:///C:/Users/x"), ("file://server/share/x", "file://server/share/x")]
    {
        let uri: PathUri = text.parse().unwrap();
        assert_eq!(uri.as_str(), canonical);
        assert_eq!(uri.to_native().unwrap_err().to_string(), format!("'{canonical}' is invalid on 'linux'"));
    }
}

#[test]
fn a_native_path_that_looks_like_a_drive_takes_the_opaque_form() {
    let uri = PathUri::from_native(Path::new("/C:/x")).unwrap();
    assert!(uri.as_str().starts_with("file:///%00/bad/path/"), "{uri}");
    assert_eq!(uri.to_native().unwrap(), Path::new("/C:/x"));
}

#[test]
fn a_relative_path_has_no_uri() {
    assert_eq!(PathUri::from_native(Path::new("relative")), None);
}

#[test]
fn only_paths_that_the_url_parser_leaves_unchanged_are_plain() {
    for path in ["/", "/a", "/a.b/c-d_e~f", "/..a/...", "/a+b@c,d=e"] {
        let text = format!("file://{path}");
        assert!(is_plain(path.as_bytes()), "{path}");
        assert_eq!(Url::parse(&text).unwrap().as_str(), text);
        assert_eq!(Url::from_file_path(path).unwrap().as_str(), text);
        assert_eq!(native(&text), Ok(path.into()));
    }
    for path in ["", "a", "//a", "/a/", "/a/./b", "/a/..", "/a b", "/C:/x", "/a%20", "/\u{fc}", "/a\\b", "/a?b"] {
        assert!(!is_plain(path.as_bytes()), "{path}");
    }
}

#[test]
fn the_opaque_form_is_normalised_and_checked_too() {
    let opaque = |bytes: &[u8]| native(&format!("file:///%00/bad/path/{}", URL_SAFE_NO_PAD.encode(bytes)));
    assert_eq!(opaque(b"/C:/x/../y/./z/"), Ok("/C:/y/z".into()));
    assert!(opaque(b"/a\0b").is_err() && opaque(b"relative").is_err());
}

proptest! {
    #[test]
    fn every_normalised_native_path_survives_a_round_trip(parts in proptest::collection::vec(proptest::collection::vec(1u8..=255, 1..12), 0..6)) {
        let mut bytes = Vec::new();
        for part in &parts {
            bytes.push(b'/');
            bytes.extend(part.iter().filter(|byte| **byte != b'/'));
        }
        bytes.push(b'/');
        let path = normalize(&bytes);
        let uri = PathUri::from_native(&path).unwrap();
        prop_assert_eq!(uri.to_native().unwrap(), path.clone());
        let again: PathUri = uri.as_str().parse().unwrap();
        prop_assert_eq!(again.to_native().unwrap(), path);
    }

    #[test]
    fn parsing_is_idempotent_and_never_panics(text in "(file:)?/{0,3}[a-zA-Z%0-9:/.\\\\?#]{0,30}") {
        if let Ok(uri) = text.parse::<PathUri>() {
            let again: PathUri = uri.as_str().parse().unwrap();
            prop_assert_eq!(again, uri.clone());
            let _ = uri.to_native();
        }
    }
}
