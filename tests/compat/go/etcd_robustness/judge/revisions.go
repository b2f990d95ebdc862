package main

import (
	"math"
	"slices"
	"sort"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
)

// revisions are those by which something changed, in order. etcd's model counts changes: the first has revision 2, the next 3.
// Here a revision is a place in the log, with gaps in between, and each one shows the map after the last change before
// it. So a revision is told to the model as the number of that change.
type revisions []int64

func revisionsOf(events []*clientv3.Event) revisions {
	var found revisions
	for _, event := range events {
		if revision := event.Kv.ModRevision; len(found) == 0 || found[len(found)-1] != revision {
			found = append(found, revision)
		}
	}
	return found
}

// at counts the changes up to a revision.
func (r revisions) at(revision int64) int64 {
	return 1 + int64(sort.Search(len(r), func(place int) bool { return r[place] > revision }))
}

// expected is what a condition compares with: a revision by which nothing changed is that of no key.
func (r revisions) expected(revision int64) int64 {
	if revision == 0 {
		return 0
	}
	if _, is := slices.BinarySearch(r, revision); !is {
		return math.MaxInt64
	}
	return r.at(revision)
}

// from is where a watch begins that begins with a revision.
func (r revisions) from(revision int64) int64 {
	if revision <= 0 {
		return revision
	}
	return r.at(revision-1) + 1
}

func (r revisions) report(given report.ClientReport) report.ClientReport {
	found := report.ClientReport{ClientID: given.ClientID}
	for _, operation := range given.KeyValue {
		operation.Input = r.request(operation.Input.(model.EtcdRequest))
		operation.Output = r.response(operation.Output.(model.MaybeEtcdResponse))
		operation.Metadata = operation.Output
		found.KeyValue = append(found.KeyValue, operation)
	}
	for _, watch := range given.Watch {
		found.Watch = append(found.Watch, r.watch(watch))
	}
	return found
}

func (r revisions) request(given model.EtcdRequest) model.EtcdRequest {
	if given.Range != nil && given.Range.Revision != 0 {
		changed := *given.Range
		changed.Revision = r.at(changed.Revision)
		given.Range = &changed
	}
	if given.Txn != nil {
		changed := *given.Txn
		changed.Conditions = slices.Clone(changed.Conditions)
		for place := range changed.Conditions {
			one := &changed.Conditions[place]
			one.ExpectedRevision = r.expected(one.ExpectedRevision)
		}
		given.Txn = &changed
	}
	return given
}

func (r revisions) response(given model.MaybeEtcdResponse) model.MaybeEtcdResponse {
	if given.Error != "" || given.ClientError != "" {
		return given
	}
	if given.Revision > 0 {
		given.Revision = r.at(given.Revision)
	}
	if given.Range != nil {
		changed := r.rows(*given.Range)
		given.Range = &changed
	}
	if given.Txn != nil {
		changed := *given.Txn
		changed.Results = slices.Clone(changed.Results)
		for place := range changed.Results {
			changed.Results[place].RangeResponse = r.rows(changed.Results[place].RangeResponse)
		}
		given.Txn = &changed
	}
	return given
}

func (r revisions) rows(given model.RangeResponse) model.RangeResponse {
	given.KVs = slices.Clone(given.KVs)
	for place := range given.KVs {
		given.KVs[place].ModRevision = r.at(given.KVs[place].ModRevision)
	}
	return given
}

func (r revisions) watch(given model.WatchOperation) model.WatchOperation {
	found := model.WatchOperation{Request: given.Request}
	found.Request.Revision = r.from(given.Request.Revision)
	for _, response := range given.Responses {
		response.Revision = r.at(response.Revision)
		response.Events = slices.Clone(response.Events)
		for place := range response.Events {
			event := &response.Events[place]
			event.Revision = r.at(event.Revision)
			if event.PrevValue != nil {
				before := *event.PrevValue
				before.ModRevision = r.at(before.ModRevision)
				event.PrevValue = &before
			}
		}
		found.Responses = append(found.Responses, response)
	}
	return found
}

// requestsOf returns what was carried out, one request for each change, as etcd's tests read it from the log of a member.
// Keys that go with their lease are told apart from keys that are deleted by who was answered that revision, or,
// where nobody was, by whether a lease was revoked without an answer that had exactly these keys.
func requestsOf(events []*clientv3.Event, counted revisions, reports []report.ClientReport) []model.EtcdRequest {
	revoked, unanswered := revokesOf(reports)
	leases, granted := map[string]int64{}, map[int64]bool{}
	var found []model.EtcdRequest
	for begin := 0; begin < len(events); {
		end := begin
		for end < len(events) && events[end].Kv.ModRevision == events[begin].Kv.ModRevision {
			end++
		}
		change := events[begin:end]
		begin = end
		lease, is := revoked[change[0].Kv.ModRevision]
		if !is {
			lease, is = wholeLease(change, leases, unanswered)
		}
		if is {
			found = append(found, model.EtcdRequest{Type: model.LeaseRevoke, LeaseRevoke: &model.LeaseRevokeRequest{LeaseID: lease}})
		} else {
			for _, event := range change {
				if lease := event.Kv.Lease; lease != 0 && !granted[lease] {
					granted[lease] = true
					found = append(found, model.EtcdRequest{Type: model.LeaseGrant, LeaseGrant: &model.LeaseGrantRequest{LeaseID: lease}})
				}
			}
			found = append(found, written(change))
		}
		for _, event := range change {
			if event.Type == clientv3.EventTypePut && event.Kv.Lease != 0 {
				leases[string(event.Kv.Key)] = event.Kv.Lease
			} else {
				delete(leases, string(event.Kv.Key))
			}
		}
	}
	return found
}

func written(change []*clientv3.Event) model.EtcdRequest {
	operations := make([]model.EtcdOperation, len(change))
	for place, event := range change {
		key := string(event.Kv.Key)
		if event.Type == clientv3.EventTypePut {
			put := model.PutOptions{Key: key, Value: model.ToValueOrHash(string(event.Kv.Value)), LeaseID: event.Kv.Lease}
			operations[place] = model.EtcdOperation{Type: model.PutOperation, Put: put}
		} else {
			operations[place] = model.EtcdOperation{Type: model.DeleteOperation, Delete: model.DeleteOptions{Key: key}}
		}
	}
	return model.EtcdRequest{Type: model.Txn, Txn: &model.TxnRequest{OperationsOnSuccess: operations}}
}

// revokesOf returns the leases that were revoked, by the revision that was answered, and those without an answer.
func revokesOf(reports []report.ClientReport) (map[int64]int64, map[int64]bool) {
	revoked, unanswered := map[int64]int64{}, map[int64]bool{}
	for _, one := range reports {
		for _, operation := range one.KeyValue {
			request, response := operation.Input.(model.EtcdRequest), operation.Output.(model.MaybeEtcdResponse)
			if request.Type != model.LeaseRevoke {
				continue
			}
			if response.Error != "" {
				unanswered[request.LeaseRevoke.LeaseID] = true
			} else {
				revoked[response.Revision] = request.LeaseRevoke.LeaseID
			}
		}
	}
	return revoked, unanswered
}

// wholeLease returns the lease of which a change has deleted all keys, if it is one of some.
func wholeLease(change []*clientv3.Event, leases map[string]int64, some map[int64]bool) (int64, bool) {
	lease := leases[string(change[0].Kv.Key)]
	if lease == 0 || !some[lease] {
		return 0, false
	}
	for _, event := range change {
		if event.Type == clientv3.EventTypePut || leases[string(event.Kv.Key)] != lease {
			return 0, false
		}
	}
	count := 0
	for _, other := range leases {
		if other == lease {
			count++
		}
	}
	return lease, count == len(change)
}
