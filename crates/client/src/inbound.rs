//! Messages that the server pushes without a request. Each message goes to the record (the client's state, see `records`) of the process,
//! watch, search or HTTP body that it is about. No function here waits. Work that takes time becomes a background job.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::{
    ExitedNotification, NetworkDecisionNotification, NetworkPolicyParams, NetworkPolicyResult, NetworkPolicyVerdict,
    ProcessId, PushedClose, PushedOutput, PushedTcpData, WireError, decode_base64, notification, server_request,
};
use recovery::{Event, Exit};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::jobs::{BackgroundJob, JobQueue};
use crate::records::{
    BodyRecords, Consequence, PortRecords, ProcessDecider, ProcessRecord, SearchRecords, WatchRecords,
};
use crate::rpc::{AnswerLoad, PeerHandler, RequestAnswer};

/// The records of everything that this client follows, and the queue of its background jobs.
#[derive(Default)]
pub(crate) struct Inbound {
    processes: Mutex<HashMap<ProcessId, Arc<ProcessRecord>>>,
    pub(crate) bodies: BodyRecords,
    pub(crate) ports: PortRecords,
    pub(crate) watches: WatchRecords,
    pub(crate) searches: SearchRecords,
    jobs: Arc<JobQueue>,
}

impl Inbound {
    /// Follows a process from now on. Returns false if a process with the same id is followed already.
    pub(crate) fn add(&self, record: &Arc<ProcessRecord>) -> bool {
        let mut processes = self.processes.lock();
        let is_new = !processes.contains_key(&record.id);
        if is_new {
            processes.insert(record.id.clone(), Arc::clone(record));
        }
        is_new
    }

    /// Stops following this process.
    pub(crate) fn remove(&self, record: &Arc<ProcessRecord>) {
        let mut processes = self.processes.lock();
        if processes.get(&record.id).is_some_and(|known| Arc::ptr_eq(known, record)) {
            processes.remove(&record.id);
        }
        drop(processes);
        record.network_decider.iter().for_each(ProcessDecider::end);
    }

    /// Stops following this process if neither a handle nor a subscriber is left.
    pub(crate) fn remove_if_unused(&self, record: &Arc<ProcessRecord>) {
        if record.is_unused() {
            self.remove(record);
        }
    }

    /// The processes whose missed events must be read after a lost connection.
    pub(crate) fn recoverable(&self) -> Vec<Arc<ProcessRecord>> {
        let processes = self.processes.lock();
        processes.values().filter(|record| record.is_recoverable() && !record.is_over()).cloned().collect()
    }

    /// The connection is lost: bodies of HTTP responses and TCP streams end with this text, because another connection
    /// cannot continue them.
    pub(crate) fn fail_streams(&self, text: &str) {
        self.bodies.fail_all(text);
        self.ports.fail_all(text);
    }

    /// The client has failed: all processes and watches end with this text. The caller also calls
    /// [`Self::fail_streams`]. A search ends with its connection.
    pub(crate) fn fail_all(&self, text: &str) {
        let processes = std::mem::take(&mut *self.processes.lock());
        for record in processes.values() {
            record.fail(text);
            record.network_decider.iter().for_each(ProcessDecider::end);
        }
        self.watches.fail_all(text);
    }

    pub(crate) fn jobs(&self) -> &Arc<JobQueue> {
        &self.jobs
    }

    pub(crate) fn add_job(&self, job: BackgroundJob) {
        self.jobs.add(job);
    }

    /// Adds a job that kills the process, unless the process is detached, that is, meant to outlive the client.
    pub(crate) fn terminate_unless_detached(&self, record: &ProcessRecord) {
        if !record.is_detached() {
            self.add_job(BackgroundJob::Terminate(record.id.clone()));
        }
    }

    /// Adds jobs that kill all processes of this client that are not detached. Called when the client closes.
    pub(crate) fn terminate_own_processes(&self) {
        let processes: Vec<_> = self.processes.lock().values().cloned().collect();
        processes.iter().filter(|record| !record.is_over()).for_each(|record| self.terminate_unless_detached(record));
    }

    /// Does the work that an event has made necessary, or adds a job that does it. A hole is a missing event before
    /// events that have come. Flow is a request to pause or resume a process.
    pub(crate) fn handle(&self, record: &Arc<ProcessRecord>, consequence: Option<Consequence>) {
        match consequence {
            None => {}
            Some(Consequence::Over) => self.remove(record),
            Some(Consequence::Terminate) => {
                self.remove(record);
                self.terminate_unless_detached(record);
            }
            Some(Consequence::FillHole) => self.add_job(BackgroundJob::FillHole(Arc::clone(record))),
            Some(Consequence::Flow) => self.add_job(BackgroundJob::SendFlow(Arc::clone(record))),
        }
    }

    /// Passes a decision on to the user. A report that is wrong, or about a process that this client has not started
    /// with a decider, is ignored.
    fn note_network_decision(&self, params: &str) {
        let decision = serde_json::from_str::<NetworkDecisionNotification>(params).ok();
        let Some(decision) = decision.filter(NetworkDecisionNotification::is_within_limits) else {
            return tracing::debug!("a report about a network decision is not valid");
        };
        let record = self.find(decision.process_id.as_str());
        if let Some(decider) = record.as_ref().and_then(|record| record.network_decider.as_ref()) {
            decider.note_decision(decision);
        }
    }

    fn find(&self, process: &str) -> Option<Arc<ProcessRecord>> {
        self.processes.lock().get(process).cloned()
    }
}

impl PeerHandler for Inbound {
    fn handle_output(&self, output: &PushedOutput<'_>) -> Result<(), String> {
        let Some(record) = self.find(&output.process_id) else { return Ok(()) };
        let chunk = Bytes::from(decode_base64(&output.chunk).map_err(|error| format!("invalid base64: {error}"))?);
        self.handle(&record, record.push(output.seq, Event::Output { stream: output.stream, chunk }));
        Ok(())
    }

    fn handle_tcp_data(&self, data: &PushedTcpData<'_>) -> Result<(), String> {
        self.ports.push(data)
    }

    fn handle_notification(&self, method: &str, params: Option<&RawValue>) -> Result<(), String> {
        let params = params.map_or("null", RawValue::get);
        match method {
            notification::PROCESS_OUTPUT => self.handle_output(&decode(params)?),
            notification::PROCESS_EXITED => {
                let exited: ExitedNotification = decode(params)?;
                if let Some(record) = self.find(exited.process_id.as_str()) {
                    let exit = Exit {
                        code: exited.exit_code,
                        sandbox_denied: exited.sandbox_denied,
                        timed_out: exited.timed_out,
                        resources: exited.resources(),
                        sandbox_denials: exited.sandbox_denials,
                    };
                    self.handle(&record, record.push(exited.seq, Event::Exited(exit)));
                }
                Ok(())
            }
            notification::PROCESS_CLOSED => {
                let closed: PushedClose<'_> = decode(params)?;
                if let Some(record) = self.find(&closed.process_id) {
                    let consequence = match closed.seq {
                        Some(seq) => record.push(seq, Event::Closed),
                        None => record.push_unnumbered_close(),
                    };
                    self.handle(&record, consequence);
                }
                Ok(())
            }
            notification::HTTP_BODY_DELTA => {
                if let Some(backlog) = self.bodies.push(&decode(params)?)? {
                    self.add_job(BackgroundJob::SendBodyFlow(backlog));
                }
                Ok(())
            }
            notification::TCP_DATA => self.ports.push(&decode(params)?),
            notification::TCP_FLOW => {
                self.ports.grant(&decode(params)?);
                Ok(())
            }
            notification::TCP_CLOSE => {
                self.ports.close(decode(params)?);
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
            notification::NETWORK_POLICY_DECISION => {
                self.note_network_decision(params);
                Ok(())
            }
            other => {
                tracing::debug!(method = other, "unknown notification");
                Ok(())
            }
        }
    }

    fn answer_request(&self, method: &str, params: Option<&RawValue>, load: AnswerLoad) -> RequestAnswer {
        if method != server_request::NETWORK_POLICY_REQUEST {
            return RequestAnswer::Now(Err(WireError {
                code: protocol::ErrorCode::MethodNotFound.number(),
                data: None,
                message: format!("exec-server client does not implement `{}` yet", protocol::shortened(method)),
            }));
        }
        let question = params.and_then(|params| serde_json::from_str::<NetworkPolicyParams>(params.get()).ok());
        let question = question.filter(|question| load == AnswerLoad::Bearable && question.is_within_limits());
        let decider = question.as_ref().and_then(|question| {
            let record = self.find(question.process_id.as_str())?;
            record.network_decider.clone()
        });
        match (question, decider) {
            (Some(question), Some(decider)) => {
                RequestAnswer::Later(Box::pin(
                    async move { Ok(policy_answer(decider.decide(question.request).await)) },
                ))
            }
            // No user of this client can be asked, so the answer is no.
            _ => RequestAnswer::Now(Ok(policy_answer(NetworkPolicyVerdict::not_allowed()))),
        }
    }
}

/// The result of `network/policyRequest`.
fn policy_answer(decision: NetworkPolicyVerdict) -> serde_json::Value {
    // These values always have a JSON form.
    serde_json::to_value(NetworkPolicyResult { decision }).unwrap_or_default()
}

fn decode<'a, T: Deserialize<'a>>(params: &'a str) -> Result<T, String> {
    serde_json::from_str(params).map_err(|error| error.to_string())
}
