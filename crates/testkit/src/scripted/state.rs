//! The scripts of a scripted server, and the messages that it has received. All connections of the server share them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::watch;

use super::{Script, ScriptedConnection, ScriptedReply, default_reply};
use crate::wait::WAIT_TIMEOUT;

/// A request or notification that a client has sent.
#[derive(Clone, Debug)]
pub struct ClientMessage {
    /// Id of a request. None for a notification.
    pub id: Option<i64>,
    /// Name of the method or notification.
    pub method: String,
    /// The params, or null if the message has none.
    pub params: Value,
    /// The connection over which the message came.
    pub connection: ScriptedConnection,
}

impl ClientMessage {
    /// Replies to a request to which its script did not reply. Panics for a notification.
    pub fn answer(&self, reply: ScriptedReply) {
        let id = self.id.expect("a notification has no answer");
        self.connection.answer(id, reply);
    }
}

#[derive(Default)]
pub(super) struct ScriptedState {
    scripts: Mutex<HashMap<String, Script>>,
    received: watch::Sender<ReceivedMessages>,
}

#[derive(Default)]
struct ReceivedMessages {
    /// Requests and notifications of clients.
    messages: Vec<ClientMessage>,
    /// Answers of clients to requests that the test has sent.
    answers: Vec<Value>,
}

impl ScriptedState {
    pub(super) fn set_script(&self, method: &str, script: Script) {
        lock(&self.scripts).insert(method.to_owned(), script);
    }

    /// The connection over which the last request or notification came.
    pub(super) fn last_connection(&self) -> Option<ScriptedConnection> {
        self.received.borrow().messages.last().map(|message| message.connection.clone())
    }

    pub(super) fn messages(&self) -> Vec<ClientMessage> {
        self.received.borrow().messages.clone()
    }

    /// Records a message. If it is a request, also calls its script and answers it. The message is recorded first, so
    /// that the script finds it among the received messages.
    pub(super) fn handle(&self, message: ClientMessage) {
        self.received.send_modify(|received| received.messages.push(message.clone()));
        let Some(id) = message.id else { return };
        let reply = match lock(&self.scripts).get_mut(&message.method) {
            Some(script) => script(&message),
            None => default_reply(&message),
        };
        message.connection.answer(id, reply);
    }

    pub(super) fn add_answer(&self, answer: Value) {
        self.received.send_modify(|received| received.answers.push(answer));
    }

    pub(super) async fn wait_for_message<T>(&self, what: &str, find: impl Fn(&[ClientMessage]) -> Option<T>) -> T {
        self.wait_until_found(what, |received| find(&received.messages)).await
    }

    pub(super) async fn wait_for_answer<T>(&self, id: i64, find: impl Fn(&[Value]) -> Option<T>) -> T {
        self.wait_until_found(&format!("an answer to request {id}"), |received| find(&received.answers)).await
    }

    /// Waits until `find` returns a value. Panics after 30 s with `what`, which names the missing message.
    async fn wait_until_found<T>(&self, what: &str, find: impl Fn(&ReceivedMessages) -> Option<T>) -> T {
        let mut received = self.received.subscribe();
        let found = tokio::time::timeout(WAIT_TIMEOUT, async {
            loop {
                if let Some(found) = find(&received.borrow_and_update()) {
                    return found;
                }
                received.changed().await.unwrap();
            }
        });
        found.await.unwrap_or_else(|_| panic!("the client never sent {what}"))
    }
}

/// Locks even after a script has panicked: its message is already printed, and a second panic would only hide it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
