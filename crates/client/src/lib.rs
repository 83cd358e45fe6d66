//! The client of exec-server: one object that stays alive while its connection changes underneath.
#![forbid(unsafe_code)]
