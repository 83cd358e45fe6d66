//! What a server sends on its own, and whom it concerns. Nothing here waits: what takes time becomes a job.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::{ExitedNotification, ProcessId, PushedClose, PushedOutput, WireError, decode_base64, notification};
use recovery::{Event, Exit};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::http::Bodies;
use crate::job::Job;
use crate::process::entry::{Consequence, Entry};
use crate::search::Searches;
use crate::watch::Watches;

/// What this client follows: processes, bodies, watches, searches.
pub(crate) struct Inbound {
    processes: Mutex<HashMap<ProcessId, Arc<Entry>>>,
    pub(crate) bodies: Bodies,
    pub(crate) watches: Watches,
    pub(crate) searches: Searches,
    jobs: mpsc::UnboundedSender<Job>,
}

impl Inbound {
    pub(crate) fn new(jobs: mpsc::UnboundedSender<Job>) -> Arc<Self> {
        Arc::new(Self {
            processes: Mutex::default(),
            bodies: Bodies::default(),
            watches: Watches::default(),
            searches: Searches::default(),
            jobs,
        })
    }

    /// Follows a process from now on. False: there is one of that id.
    pub(crate) fn add(&self, entry: &Arc<Entry>) -> bool {
        let mut processes = self.processes.lock();
        let is_new = !processes.contains_key(&entry.id);
        if is_new {
            processes.insert(entry.id.clone(), Arc::clone(entry));
        }
        is_new
    }

    /// Follows it no longer.
    pub(crate) fn remove(&self, entry: &Arc<Entry>) {
        let mut processes = self.processes.lock();
        if processes.get(&entry.id).is_some_and(|known| Arc::ptr_eq(known, entry)) {
            processes.remove(&entry.id);
        }
    }

    /// Follows it no longer if there is neither a handle nor a subscriber.
    pub(crate) fn remove_if_unwatched(&self, entry: &Arc<Entry>) {
        if entry.is_unwatched() {
            self.remove(entry);
        }
    }

    /// Those to catch up with after a lost connection.
    pub(crate) fn recoverable(&self) -> Vec<Arc<Entry>> {
        let processes = self.processes.lock();
        processes.values().filter(|entry| entry.is_recoverable() && !entry.is_over()).cloned().collect()
    }

    /// Nothing will come any more, for nobody.
    pub(crate) fn fail_all(&self, text: &str) {
        let processes = std::mem::take(&mut *self.processes.lock());
        processes.values().for_each(|entry| entry.fail(text));
        self.watches.fail_all(text);
    }

    pub(crate) fn job(&self, job: Job) {
        // Nobody takes jobs any more once the client is closed, and then there is nothing left to do.
        let _closed = self.jobs.send(job);
    }

    /// Ends a process that nobody follows any more, unless it was there before us or is to be there after us.
    pub(crate) fn end_if_ours(&self, entry: &Entry) {
        if !entry.is_detached() {
            self.job(Job::Terminate(entry.id.clone()));
        }
    }

    /// Ends every process that is followed and was not asked to stay.
    pub(crate) fn end_all_of_ours(&self) {
        let processes: Vec<_> = self.processes.lock().values().cloned().collect();
        processes.iter().filter(|entry| !entry.is_over()).for_each(|entry| self.end_if_ours(entry));
    }

    pub(crate) fn output(&self, output: &PushedOutput<'_>) -> Result<(), String> {
        let Some(entry) = self.find(&output.process_id) else { return Ok(()) };
        let chunk = Bytes::from(decode_base64(&output.chunk).map_err(|error| format!("invalid base64: {error}"))?);
        self.handle(&entry, entry.push(output.seq, Event::Output { stream: output.stream, chunk }));
        Ok(())
    }

    pub(crate) fn notification(&self, method: &str, params: Option<&RawValue>) -> Result<(), String> {
        let params = params.map_or("null", RawValue::get);
        match method {
            notification::PROCESS_OUTPUT => self.output(&decode(params)?),
            notification::PROCESS_EXITED => {
                let exited: ExitedNotification = decode(params)?;
                if let Some(entry) = self.find(exited.process_id.as_str()) {
                    let exit = Exit {
                        code: exited.exit_code,
                        sandbox_denied: exited.sandbox_denied,
                        timed_out: exited.timed_out,
                    };
                    self.handle(&entry, entry.push(exited.seq, Event::Exited(exit)));
                }
                Ok(())
            }
            notification::PROCESS_CLOSED => {
                let closed: PushedClose<'_> = decode(params)?;
                if let Some(entry) = self.find(&closed.process_id) {
                    let consequence = match closed.seq {
                        Some(seq) => entry.push(seq, Event::Closed),
                        None => entry.push_unnumbered_close(),
                    };
                    self.handle(&entry, consequence);
                }
                Ok(())
            }
            notification::HTTP_BODY_DELTA => {
                if let Some(backlog) = self.bodies.push(&decode(params)?)? {
                    self.job(Job::TellBodyFlow(backlog));
                }
                Ok(())
            }
            notification::FS_CHANGED => {
                self.watches.push(decode(params)?);
                Ok(())
            }
            notification::FS_FOUND => {
                self.searches.push(decode(params)?);
                Ok(())
            }
            other => {
                tracing::debug!(method = other, "a notification nobody waits for");
                Ok(())
            }
        }
    }

    /// A request of the server.
    pub(crate) fn request(&self, method: &str) -> Result<serde_json::Value, WireError> {
        match method {
            // Nobody here can decide; what is not allowed is denied.
            "network/policyRequest" => Ok(serde_json::json!({"decision": {"type": "deny", "reason": "not_allowed"}})),
            other => Err(WireError {
                code: protocol::ErrorCode::MethodNotFound.number(),
                data: None,
                message: format!("exec-server client does not implement `{other}` yet"),
            }),
        }
    }

    /// Acts on what an event brought about.
    pub(crate) fn handle(&self, entry: &Arc<Entry>, consequence: Option<Consequence>) {
        match consequence {
            None => {}
            Some(Consequence::Over) => self.remove(entry),
            Some(Consequence::Terminate) => {
                self.remove(entry);
                self.end_if_ours(entry);
            }
            Some(Consequence::FillHole) => self.job(Job::FillHole(Arc::clone(entry))),
            Some(Consequence::Flow) => self.job(Job::TellFlow(Arc::clone(entry))),
        }
    }

    fn find(&self, process: &str) -> Option<Arc<Entry>> {
        self.processes.lock().get(process).cloned()
    }
}

fn decode<'a, T: Deserialize<'a>>(params: &'a str) -> Result<T, String> {
    serde_json::from_str(params).map_err(|error| error.to_string())
}
