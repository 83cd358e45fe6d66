//! Environments that callers share: connecting at first use, reports about deferred environments, and what happens
//! after failures.

use std::sync::Arc;

use client::{
    CapabilityRoot, ExecServerError, ProvisioningReport, ReportEffect, SharedEnvironment, SharedEnvironmentStatus,
    SharedEnvironments,
};
use testkit::ScriptedServer;
use testkit::scripted::ScriptedReply;

use crate::support::{ScriptedDialler, options, wait_for_failure};

fn dialler(server: &ScriptedServer) -> ScriptedDialler {
    ScriptedDialler { server: server.clone(), can_reconnect: true }
}

fn ready(ids: &[&str]) -> ProvisioningReport {
    let root = |id: &&str| CapabilityRoot {
        id: (*id).to_owned(),
        path: format!("file:///{id}").parse().unwrap(),
        sandbox: None,
    };
    ProvisioningReport::Ready(ids.iter().map(root).collect())
}

fn failed(reason: &str) -> ProvisioningReport {
    ProvisioningReport::Failed(reason.to_owned())
}

#[tokio::test]
async fn an_environment_is_connected_when_it_is_first_used_and_all_callers_share_its_client() {
    let (environments, server) = (SharedEnvironments::default(), ScriptedServer::new());
    let environment = environments.add("box", dialler(&server), options()).unwrap();
    assert_eq!(environment.status().await, SharedEnvironmentStatus::Pending);
    assert_eq!(server.connections_opened(), 0, "neither adding it nor asking for its status connects");
    let found = environments.find("box").unwrap();
    for user in [&environment, &environment, &found].map(use_in_a_task) {
        user.await.unwrap().unwrap();
    }
    assert_eq!(server.connections_opened(), 1);
    assert_eq!(environment.status().await, SharedEnvironmentStatus::Ready);
    assert!(environments.find("other").is_none());
    drop(environment);
    environments.close().await;
}

#[tokio::test]
async fn a_deferred_environment_connects_only_when_it_is_ready_and_used() {
    let (environments, server) = (SharedEnvironments::default(), ScriptedServer::new());
    let environment = environments.add_deferred("later", dialler(&server), options()).unwrap();
    let mut waiting = use_in_a_task(&environment);
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("nothing was reported"),
        () = tokio::task::yield_now() => {}
    }
    assert_eq!(environments.report("later", ready(&["a"])), Ok(ReportEffect::Applied));
    waiting.await.unwrap().unwrap();
    assert_eq!(server.connections_opened(), 1);
    assert_eq!(environments.report("later", ready(&["b", "c"])), Ok(ReportEffect::Applied));
    let ids: Vec<String> = environment.capability_roots().into_iter().map(|root| root.id).collect();
    assert_eq!(ids, ["b", "c"]);
    assert_eq!(environments.report("later", failed("too late")), Ok(ReportEffect::Ignored));
    environment.client().await.unwrap();
    assert_eq!(server.connections_opened(), 1, "later reports leave the client alone");
}

#[tokio::test]
async fn a_report_may_come_before_its_environment_and_both_are_one_object() {
    let (environments, server) = (SharedEnvironments::default(), ScriptedServer::new());
    assert_eq!(environments.report("later", ready(&["a"])), Ok(ReportEffect::Applied));
    let reported = environments.find("later").unwrap();
    let added = environments.add_deferred("later", dialler(&server), options()).unwrap();
    let unused = ScriptedServer::new();
    let again = environments.add_deferred("later", dialler(&unused), options()).unwrap();
    assert!(Arc::ptr_eq(&reported, &added) && Arc::ptr_eq(&added, &again));
    assert_eq!(server.connections_opened(), 0, "nobody has used it");
    reported.client().await.unwrap();
    assert_eq!((server.connections_opened(), unused.connections_opened()), (1, 0));
}

#[tokio::test]
async fn an_environment_that_was_reported_as_failed_never_connects() {
    let (environments, server) = (SharedEnvironments::default(), ScriptedServer::new());
    let environment = environments.add_deferred("later", dialler(&server), options()).unwrap();
    let waiting = use_in_a_task(&environment);
    assert_eq!(environments.report("later", failed("no quota")), Ok(ReportEffect::Applied));
    assert_eq!(environments.report("later", ready(&[])), Ok(ReportEffect::Ignored));
    for result in [waiting.await.unwrap(), environment.client().await.map(drop)] {
        let error = result.unwrap_err();
        assert!(matches!(&error, ExecServerError::ProvisioningFailed(reason) if reason == "no quota"), "{error:?}");
    }
    assert_eq!(environment.status().await, SharedEnvironmentStatus::Disconnected("no quota".to_owned()));
    assert_eq!(server.connections_opened(), 0);
}

#[tokio::test]
async fn a_first_report_that_is_invalid_fails_the_environment() {
    let (environments, server) = (SharedEnvironments::default(), ScriptedServer::new());
    let environment = environments.add_deferred("later", dialler(&server), options()).unwrap();
    environments.report("later", ready(&["a", "a"])).unwrap_err();
    let error = environment.client().await.err().unwrap();
    assert!(error.to_string().contains("two capability roots with the id `a`"), "{error}");
    assert_eq!(server.connections_opened(), 0);
}

#[tokio::test]
async fn an_id_belongs_to_one_kind_of_environment() {
    let (environments, server) = (SharedEnvironments::default(), ScriptedServer::new());
    environments.add("ordinary", dialler(&server), options()).unwrap();
    environments.add_deferred("later", dialler(&server), options()).unwrap();
    let conflicts = [
        environments.add_deferred("ordinary", dialler(&server), options()),
        environments.add("later", dialler(&server), options()),
    ];
    for (conflict, name) in conflicts.into_iter().zip(["ordinary", "later"]) {
        let error = conflict.err().unwrap();
        assert!(matches!(&error, ExecServerError::ProvisioningModeConflict { id } if id == name), "{error:?}");
    }
    for report in [failed("no"), ready(&["a"]), ready(&["a", "a"])] {
        assert_eq!(environments.report("ordinary", report), Ok(ReportEffect::Ignored));
    }
    environments.find("ordinary").unwrap().client().await.unwrap();
}

#[tokio::test]
async fn a_replaced_environment_keeps_its_client_for_those_who_hold_it() {
    let (environments, [old, new]) = (SharedEnvironments::default(), [(); 2].map(|()| ScriptedServer::new()));
    let held = environments.add("box", dialler(&old), options()).unwrap();
    held.client().await.unwrap();
    environments.add("box", dialler(&new), options()).unwrap().client().await.unwrap();
    held.client().await.unwrap().environment_status().await.unwrap();
    assert_eq!((old.connections_opened(), new.connections_opened()), (1, 1));
}

#[tokio::test]
async fn an_error_that_another_attempt_cannot_mend_is_remembered_and_others_are_tried_again() {
    let (environments, server) = (SharedEnvironments::default(), ScriptedServer::new());
    let environment = environments.add("box", dialler(&server), options()).unwrap();
    server.on("initialize", |_| ScriptedReply::Cut);
    let refused = environment.client().await.err().unwrap();
    assert!(refused.is_retryable(), "{refused:?}");
    assert_eq!(environment.status().await, SharedEnvironmentStatus::Disconnected(refused.to_string()));
    server.on("initialize", |_| ScriptedReply::Error(-32600, "no".to_owned()));
    assert_eq!(environment.client().await.err().unwrap().to_string(), "no");
    let opened = server.connections_opened();
    assert_eq!(environment.client().await.err().unwrap().to_string(), "no");
    assert_eq!(server.connections_opened(), opened, "the error is remembered");
}

#[tokio::test]
async fn a_client_that_has_given_up_is_replaced_by_one_with_a_new_session_if_the_server_can_be_reached_again() {
    for can_reconnect in [true, false] {
        let (environments, server) = (SharedEnvironments::default(), ScriptedServer::new());
        let dialler = ScriptedDialler { server: server.clone(), can_reconnect };
        let environment = environments.add("box", dialler, options()).unwrap();
        let first = environment.client().await.unwrap();
        server.on("initialize", |asked| match asked.params["resumeSessionId"].is_null() {
            true => ScriptedReply::Result(testkit::json!({"sessionId": "session-2"})),
            false => ScriptedReply::Error(-32600, "unknown session".to_owned()),
        });
        server.cut();
        wait_for_failure(&first).await;
        let next = environment.client().await.unwrap();
        let session = if can_reconnect { "session-2" } else { "session-1" };
        assert_eq!(next.session_id().unwrap().as_str(), session);
        assert_eq!(environment.status().await == SharedEnvironmentStatus::Ready, can_reconnect);
    }
}

/// Starts a task that waits for the client of an environment.
fn use_in_a_task(environment: &Arc<SharedEnvironment>) -> tokio::task::JoinHandle<Result<(), ExecServerError>> {
    let environment = Arc::clone(environment);
    tokio::spawn(async move { environment.client().await.map(drop) })
}
