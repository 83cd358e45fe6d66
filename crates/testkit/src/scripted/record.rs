//! What a scripted server was asked, and what it is to say.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::watch;

use super::{Reply, Script, ScriptedConnection, unscripted};
use crate::wait::PATIENCE;

/// A request or notification of a client.
#[derive(Clone, Debug)]
pub struct ClientMessage {
    /// None for a notification.
    pub id: Option<i64>,
    /// The method.
    pub method: String,
    /// Its params; null where there were none.
    pub params: Value,
    /// Where it came from.
    pub connection: ScriptedConnection,
}

impl ClientMessage {
    /// Answers it after all.
    pub fn answer(&self, reply: Reply) {
        let id = self.id.expect("a notification has no answer");
        self.connection.answer(id, reply);
    }
}

#[derive(Default)]
pub(super) struct Record {
    scripts: Mutex<HashMap<String, Script>>,
    heard: watch::Sender<Heard>,
}

#[derive(Default)]
struct Heard {
    asked: Vec<ClientMessage>,
    answers: Vec<Value>,
}

impl Record {
    pub(super) fn set_script(&self, method: &str, script: Script) {
        lock(&self.scripts).insert(method.to_owned(), script);
    }

    pub(super) fn connection(&self) -> Option<ScriptedConnection> {
        self.heard.borrow().asked.last().map(|asked| asked.connection.clone())
    }

    pub(super) fn asked(&self) -> Vec<ClientMessage> {
        self.heard.borrow().asked.clone()
    }

    /// It is noted before the script decides, and answered after that.
    pub(super) fn note(&self, asked: ClientMessage) {
        self.heard.send_modify(|heard| heard.asked.push(asked.clone()));
        let Some(id) = asked.id else { return };
        let reply = match lock(&self.scripts).get_mut(&asked.method) {
            Some(script) => script(&asked),
            None => unscripted(&asked),
        };
        asked.connection.answer(id, reply);
    }

    pub(super) fn note_answer(&self, answer: Value) {
        self.heard.send_modify(|heard| heard.answers.push(answer));
    }

    pub(super) async fn wait<T>(&self, what: &str, look: impl Fn(&[ClientMessage]) -> Option<T>) -> T {
        self.wait_in(what, |heard| look(&heard.asked)).await
    }

    pub(super) async fn wait_for_answer<T>(&self, id: i64, look: impl Fn(&[Value]) -> Option<T>) -> T {
        self.wait_in(&format!("an answer to request {id}"), |heard| look(&heard.answers)).await
    }

    async fn wait_in<T>(&self, what: &str, look: impl Fn(&Heard) -> Option<T>) -> T {
        let mut heard = self.heard.subscribe();
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                if let Some(found) = look(&heard.borrow_and_update()) {
                    return found;
                }
                heard.changed().await.unwrap();
            }
        });
        found.await.unwrap_or_else(|_| panic!("the client never sent {what}"))
    }
}

/// A script that panicked has failed its test already.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
