package main

import (
	"slices"

	"github.com/anishathalye/porcupine"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
)

// plants put something wrong into a history; each says whether it had a place for that.
var plants = map[string]func([]report.ClientReport) ([]report.ClientReport, bool){
	"a read of a value that nobody has written": func(given []report.ClientReport) ([]report.ClientReport, bool) {
		return otherRow(given, func(request *model.RangeRequest) bool { return request.Revision == 0 })
	},
	"a read of the past with another value": func(given []report.ClientReport) ([]report.ClientReport, bool) {
		return otherRow(given, func(request *model.RangeRequest) bool { return request.Revision != 0 })
	},
	"a write that was answered with a revision of before": func(given []report.ClientReport) ([]report.ClientReport, bool) {
		return otherAnswer(given, func(request model.EtcdRequest, response *model.MaybeEtcdResponse) bool {
			if request.Type != model.Txn || request.IsRead() || response.Revision < 10 {
				return false
			}
			response.Revision--
			return true
		})
	},
	"a watch that leaves an event out": func(given []report.ClientReport) ([]report.ClientReport, bool) {
		return otherEvents(given, func(responses []model.WatchResponse, place int) []model.WatchResponse {
			return slices.Delete(responses, place, place+1)
		})
	},
	"a watch that tells events twice": func(given []report.ClientReport) ([]report.ClientReport, bool) {
		return otherEvents(given, func(responses []model.WatchResponse, place int) []model.WatchResponse {
			return slices.Insert(responses, place, responses[place])
		})
	},
}

func otherRow(given []report.ClientReport, is func(*model.RangeRequest) bool) ([]report.ClientReport, bool) {
	return otherAnswer(given, func(request model.EtcdRequest, response *model.MaybeEtcdResponse) bool {
		if request.Type != model.Range || !is(request.Range) || response.Range == nil || len(response.Range.KVs) == 0 {
			return false
		}
		changed := *response.Range
		changed.KVs = slices.Clone(changed.KVs)
		changed.KVs[0].Value = model.ToValueOrHash("planted")
		response.Range = &changed
		return true
	})
}

// otherAnswer changes one answer, in the middle of those that can be.
func otherAnswer(
	given []report.ClientReport, change func(model.EtcdRequest, *model.MaybeEtcdResponse) bool,
) ([]report.ClientReport, bool) {
	type place struct{ report, operation int }
	var places []place
	for number, one := range given {
		for at, operation := range one.KeyValue {
			response := operation.Output.(model.MaybeEtcdResponse)
			if response.Error == "" && change(operation.Input.(model.EtcdRequest), &response) {
				places = append(places, place{number, at})
			}
		}
	}
	if len(places) == 0 {
		return nil, false
	}
	chosen := places[len(places)/2]
	found := slices.Clone(given)
	operations := slices.Clone(found[chosen.report].KeyValue)
	operations[chosen.operation] = changed(operations[chosen.operation], change)
	found[chosen.report].KeyValue = operations
	return found, true
}

func changed(operation porcupine.Operation, change func(model.EtcdRequest, *model.MaybeEtcdResponse) bool) porcupine.Operation {
	response := operation.Output.(model.MaybeEtcdResponse)
	change(operation.Input.(model.EtcdRequest), &response)
	operation.Output, operation.Metadata = response, response
	return operation
}

// otherEvents changes the watch that has told most, at a message with events in the middle of it.
func otherEvents(
	given []report.ClientReport, change func([]model.WatchResponse, int) []model.WatchResponse,
) ([]report.ClientReport, bool) {
	most, watch, client := 0, 0, 0
	for number, one := range given {
		for at, operation := range one.Watch {
			if count := len(withEvents(operation.Responses)); count > most {
				most, watch, client = count, at, number
			}
		}
	}
	if most < 3 {
		return nil, false
	}
	found := slices.Clone(given)
	watches := slices.Clone(found[client].Watch)
	responses := slices.Clone(watches[watch].Responses)
	watches[watch].Responses = change(responses, withEvents(responses)[most/2])
	found[client].Watch = watches
	return found, true
}

func withEvents(responses []model.WatchResponse) (places []int) {
	for place, response := range responses {
		if len(response.Events) > 0 {
			places = append(places, place)
		}
	}
	return places
}
