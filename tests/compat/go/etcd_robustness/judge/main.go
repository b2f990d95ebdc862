// Traffic of etcd's own robustness tests on endpoints that are there already, judged by their model and their rules of
// watches.
//
//	judge TRAFFIC STEP ENDPOINTS
//
// TRAFFIC is "etcd", "delete" or "kubernetes"; ENDPOINTS have commas between them. It says "step" after each STEP changes that
// a watch has told, until a line comes in, or the input ends. Then it judges, and says what it has judged as JSON; what is
// wrong it says on standard error, and ends with 1.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/tests/v3/robustness/client"
	"go.etcd.io/etcd/tests/v3/robustness/identity"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/etcd/tests/v3/robustness/traffic"
	"go.etcd.io/etcd/tests/v3/robustness/validate"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

const (
	perSecond    = 200
	callS        = 5 * time.Second
	collectS     = 2 * time.Minute
	judgeS       = 5 * time.Minute
	notUnique    = 3 // At once, of the writes that cannot be told from one another.
	memberLoads  = 6
	clusterLoads = 2
)

var traffics = map[string]traffic.Traffic{
	"etcd":       traffic.EtcdPutDeleteLease,
	"delete":     traffic.EtcdDelete,
	"kubernetes": traffic.Kubernetes,
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func connect(endpoints []string) *clientv3.Client {
	found, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
		DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
	})
	if err != nil {
		fail(err)
	}
	return found
}

// tellSteps says "step" after each so many changes, until it is stopped.
func tellSteps(ctx context.Context, endpoints []string, step int) {
	watcher := connect(endpoints)
	defer watcher.Close()
	told := 0
	for event := range watcher.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		for range event.Events {
			if told++; told%step == 0 {
				fmt.Println("step")
			}
		}
	}
}

// history returns all changes of a map, in order, up to a revision, as one of its replicas tells them now.
func history(endpoint string, last int64) ([]*clientv3.Event, error) {
	ctx, cancel := context.WithTimeout(context.Background(), collectS)
	defer cancel()
	watcher := connect([]string{endpoint})
	defer watcher.Close()
	var events []*clientv3.Event
	for told := range watcher.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		if err := told.Err(); err != nil {
			return nil, err
		}
		events = append(events, told.Events...)
		if len(events) > 0 && events[len(events)-1].Kv.ModRevision >= last {
			return events, nil
		}
	}
	return nil, fmt.Errorf("%s tells no more than %d changes, up to revision %d is wanted", endpoint, len(events), last)
}

// sameHistory returns the changes, which all replicas have to tell alike.
func sameHistory(endpoints []string, last int64) ([]*clientv3.Event, error) {
	var first []*clientv3.Event
	for place, endpoint := range endpoints {
		events, err := history(endpoint, last)
		if err != nil {
			return nil, err
		}
		if place == 0 {
			first = events
			continue
		}
		for number := range max(len(first), len(events)) {
			if number >= len(first) || number >= len(events) || !reflect.DeepEqual(shown(first[number]), shown(events[number])) {
				return nil, fmt.Errorf("%s and %s tell another change as number %d", endpoints[0], endpoint, number)
			}
		}
	}
	return first, nil
}

func shown(event *clientv3.Event) [6]string {
	kv := event.Kv
	return [6]string{
		event.Type.String(), string(kv.Key), string(kv.Value), strconv.FormatInt(kv.ModRevision, 10),
		strconv.FormatInt(kv.Version, 10), strconv.FormatInt(kv.Lease, 10),
	}
}

// load runs the traffic until a line comes in; returns what its clients have seen, and the last revision.
func load(ctx context.Context, kind traffic.Traffic, endpoints []string, clients *client.ClientSet) ([]report.ClientReport, int64) {
	var group sync.WaitGroup
	limiter, finish := rate.NewLimiter(perSecond, perSecond), make(chan struct{})
	keys, storage := traffic.NewKeyStore(10, "key"), traffic.NewKubernetesStorage()
	values := &traffic.KeyValue{MemberClientCount: memberLoads, ClusterClientCount: clusterLoads}
	err := traffic.SimulateKeyValueTraffic(ctx, &group, values, endpoints, clients, kind, traffic.RunTrafficLoopParam{
		QPSLimiter: limiter, IDs: clients.IdentityProvider(), LeaseIDStorage: identity.NewLeaseIDStorage(),
		NonUniqueRequestConcurrencyLimiter: traffic.NewConcurrencyLimiter(notUnique),
		KeyStore:                           keys, Storage: storage, Finish: finish,
	})
	if err != nil {
		fail(err)
	}
	watches := &traffic.Watch{
		MemberClientCount: memberLoads, ClusterClientCount: clusterLoads,
		RevisionOffsetRange: traffic.Range{Min: -100, Max: 100},
	}
	err = traffic.SimulateWatchTraffic(ctx, &group, watches, endpoints, clients, kind, traffic.RunWatchLoopParam{
		Config: *watches, QPSLimiter: limiter, KeyStore: keys, Storage: storage, Finish: finish, Logger: zap.NewNop(),
	})
	if err != nil {
		fail(err)
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	close(finish)
	group.Wait()
	last, err := clients.NewClient(endpoints)
	if err != nil {
		fail(err)
	}
	ended, err := last.Put(ctx, "tombstone", "true")
	if err != nil {
		fail(fmt.Errorf("the last put must be answered: %w", err))
	}
	return clients.Reports(), ended.Header.Revision
}

func main() {
	kind, endpoints := traffics[os.Args[1]], strings.Split(os.Args[3], ",")
	step, err := strconv.Atoi(os.Args[2])
	if kind == nil || err != nil {
		fail(fmt.Errorf("judge etcd|delete|kubernetes STEP ENDPOINTS, not %v", os.Args[1:]))
	}
	traffic.RequestTimeout, traffic.WatchTimeout = callS, callS
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ids, begin := identity.NewIDProvider(), time.Now()
	clients, watchers := client.NewSet(ids, begin), client.NewSet(ids, begin)
	first, err := clients.NewClient(endpoints)
	if err != nil {
		fail(err)
	}
	if _, err := first.Get(ctx, "key"); err != nil {
		fail(fmt.Errorf("the first get must be answered: %w", err))
	}
	go tellSteps(ctx, endpoints, step)
	reached, collected := make(chan int64, 1), make(chan error, 1)
	go func() {
		collected <- client.CollectClusterWatchEvents(ctx, client.CollectClusterWatchEventsParam{
			Lg: zap.NewNop(), Endpoints: endpoints, MaxRevisionChan: reached, ClientSet: watchers,
		})
	}()
	reports, last := load(ctx, kind, endpoints, clients)
	reached <- last
	select {
	case err := <-collected:
		if err != nil {
			fail(fmt.Errorf("a watch of everything has ended: %w", err))
		}
	case <-time.After(collectS):
		fail(fmt.Errorf("watches of everything have not come to revision %d in %v", last, collectS))
	}
	events, err := sameHistory(endpoints, last)
	if err != nil {
		fail(err)
	}
	judge(kind, append(reports, watchers.Reports()...), events)
}

func judge(kind traffic.Traffic, reports []report.ClientReport, events []*clientv3.Event) {
	counted := revisionsOf(events)
	requests := requestsOf(events, counted, reports)
	for place := range reports {
		reports[place] = counted.report(reports[place])
	}
	log, err := zap.NewDevelopment(zap.IncreaseLevel(zap.WarnLevel))
	if err != nil {
		fail(err)
	}
	if err := wrong(log, kind, reports, requests); err != nil {
		fail(err)
	}
	// What finds nothing wrong must find what is.
	found := summary(reports, len(requests))
	for name, plant := range plants {
		planted, is := plant(reports)
		if !is {
			continue
		}
		if wrong(zap.NewNop(), kind, planted, requests) == nil {
			fail(fmt.Errorf("%s was put into the history, and not found", name))
		}
		found["planted"]++
	}
	said, err := json.Marshal(found)
	if err != nil {
		fail(err)
	}
	fmt.Println()
	fmt.Println(string(said))
}

// wrong returns what etcd's model and its rules of watches say against a history; nil = nothing, and all of it was judged.
func wrong(log *zap.Logger, kind traffic.Traffic, reports []report.ClientReport, requests []model.EtcdRequest) error {
	config := validate.Config{ExpectRevisionUnique: kind.ExpectUniqueRevision()}
	found := validate.ValidateAndReturnVisualize(log, config, reports, requests, judgeS)
	if err := found.Error(); err != nil {
		return err
	}
	for name, one := range map[string]validate.Result{
		"linearization": found.Linearization.Result, "watch": found.Watch, "reads of the past": found.Serializable,
	} {
		if one.Status != validate.Success {
			return fmt.Errorf("%s was not judged: %q", name, one.Status)
		}
	}
	return nil
}

func summary(reports []report.ClientReport, changes int) map[string]int {
	found := map[string]int{"changes": changes}
	for _, one := range reports {
		for _, operation := range one.KeyValue {
			found["calls"]++
			found[kindOf(operation)]++
			if operation.Output.(model.MaybeEtcdResponse).Error != "" {
				found["failed"]++
			}
		}
		found["watches"] += len(one.Watch)
		found["events"] += one.WatchEventCount()
	}
	return found
}

func kindOf(operation porcupine.Operation) string {
	request := operation.Input.(model.EtcdRequest)
	if request.Type == model.Range && request.Range.Revision != 0 {
		return "range of the past"
	}
	return string(request.Type)
}
