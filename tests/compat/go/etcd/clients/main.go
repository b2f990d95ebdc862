// What programs do with etcd's own client: locks, elections, software transactions, and lists and watches as
// Kubernetes has them. Each part ends the process with an error where something is not as etcd promises.
//
//	clients PART ENDPOINT[,ENDPOINT...]
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

var parts = map[string]func(context.Context, *clientv3.Client) error{
	"locks":      locks,
	"election":   election,
	"stm":        stm,
	"leases":     leases,
	"kubernetes": kubernetes,
	"progress":   progress,
}

func main() {
	if len(os.Args) != 3 || parts[os.Args[1]] == nil {
		fail(fmt.Errorf("usage: clients PART ENDPOINT[,ENDPOINT...]"))
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   strings.Split(os.Args[2], ","),
		DialTimeout: 10 * time.Second,
		Username:    os.Getenv("ETCD_USER"),
		Password:    os.Getenv("ETCD_PASSWORD"),
	})
	if err != nil {
		fail(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	if err := parts[os.Args[1]](ctx, client); err != nil {
		fail(fmt.Errorf("%s: %w", os.Args[1], err))
	}
	fmt.Println("well")
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// ---- locks: a counter that is read and written without a comparison, under a mutex

func locks(ctx context.Context, client *clientv3.Client) error {
	const workers, rounds = 4, 8
	if _, err := client.Put(ctx, "counter", "0"); err != nil {
		return err
	}
	return together(workers, func(int) error {
		session, err := concurrency.NewSession(client, concurrency.WithTTL(20))
		if err != nil {
			return err
		}
		defer session.Close()
		mutex := concurrency.NewMutex(session, "/locks/counter")
		for range rounds {
			if err := mutex.Lock(ctx); err != nil {
				return err
			}
			got, err := client.Get(ctx, "counter")
			if err != nil {
				return err
			}
			number, err := strconv.Atoi(string(got.Kvs[0].Value))
			if err != nil {
				return err
			}
			put := clientv3.OpPut("counter", strconv.Itoa(number+1))
			done, err := client.Txn(ctx).If(mutex.IsOwner()).Then(put).Commit()
			if err != nil {
				return err
			}
			if !done.Succeeded {
				return errors.New("the lock was lost")
			}
			if err := mutex.Unlock(ctx); err != nil {
				return err
			}
		}
		return nil
	}, func() error { return expect(ctx, client, "counter", strconv.Itoa(workers*rounds)) })
}

// ---- election: each candidate leads once, and those who look on see each of them

func election(ctx context.Context, client *clientv3.Client) error {
	const candidates = 3
	seen := map[string]bool{}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	session, err := concurrency.NewSession(client)
	if err != nil {
		return err
	}
	defer session.Close()
	observed := concurrency.NewElection(session, "/election").Observe(watching)
	var mutex sync.Mutex
	go func() {
		for response := range observed {
			mutex.Lock()
			seen[string(response.Kvs[0].Value)] = true
			mutex.Unlock()
		}
	}()
	leads := 0
	return together(candidates, func(n int) error {
		session, err := concurrency.NewSession(client)
		if err != nil {
			return err
		}
		defer session.Close()
		election := concurrency.NewElection(session, "/election")
		name := fmt.Sprintf("candidate-%d", n)
		if err := election.Campaign(ctx, name); err != nil {
			return err
		}
		leads++ // Nobody else is here.
		leader, err := election.Leader(ctx)
		if err != nil {
			return err
		}
		if string(leader.Kvs[0].Value) != name {
			return fmt.Errorf("%s leads, and %s is told", name, leader.Kvs[0].Value)
		}
		for {
			mutex.Lock()
			known := seen[name]
			mutex.Unlock()
			if known {
				return election.Resign(ctx)
			}
			if ctx.Err() != nil {
				return fmt.Errorf("%s was never seen by who looks on", name)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}, func() error {
		if leads != candidates {
			return fmt.Errorf("%d of %d led", leads, candidates)
		}
		return nil
	})
}

// ---- software transactions: transfers keep the sum

func stm(ctx context.Context, client *clientv3.Client) error {
	const accounts, workers, transfers = 5, 4, 10
	for n := range accounts {
		if _, err := client.Put(ctx, fmt.Sprintf("account/%d", n), "100"); err != nil {
			return err
		}
	}
	move := func(worker, turn int) error {
		from, to := fmt.Sprintf("account/%d", (worker+turn)%accounts), fmt.Sprintf("account/%d", (worker*2+turn+1)%accounts)
		_, err := concurrency.NewSTM(client, func(s concurrency.STM) error {
			have, _ := strconv.Atoi(s.Get(from))
			s.Put(from, strconv.Itoa(have-turn))
			gets, _ := strconv.Atoi(s.Get(to))
			s.Put(to, strconv.Itoa(gets+turn))
			return nil
		}, concurrency.WithAbortContext(ctx))
		return err
	}
	return together(workers, func(worker int) error {
		for turn := range transfers {
			if err := move(worker, turn); err != nil {
				return err
			}
		}
		return nil
	}, func() error {
		got, err := client.Get(ctx, "account/", clientv3.WithPrefix())
		if err != nil {
			return err
		}
		sum := 0
		for _, kv := range got.Kvs {
			number, _ := strconv.Atoi(string(kv.Value))
			sum += number
		}
		if sum != accounts*100 {
			return fmt.Errorf("the sum is %d", sum)
		}
		return nil
	})
}

// ---- leases: kept ones live, others take their keys with them

func leases(ctx context.Context, client *clientv3.Client) error {
	kept, err := client.Grant(ctx, 3)
	if err != nil {
		return err
	}
	left, err := client.Grant(ctx, 2)
	if err != nil {
		return err
	}
	answers, err := client.KeepAlive(ctx, kept.ID)
	if err != nil {
		return err
	}
	if answer := <-answers; answer == nil || answer.TTL != 3 {
		return fmt.Errorf("kept alive: %v", answer)
	}
	for key, lease := range map[string]clientv3.LeaseID{"kept": kept.ID, "left": left.ID} {
		if _, err := client.Put(ctx, key, "x", clientv3.WithLease(lease)); err != nil {
			return err
		}
	}
	told, err := client.TimeToLive(ctx, kept.ID, clientv3.WithAttachedKeys())
	if err != nil || len(told.Keys) != 1 || string(told.Keys[0]) != "kept" || told.GrantedTTL != 3 {
		return fmt.Errorf("time to live: %v %w", told, err)
	}
	gone, stop := context.WithCancel(ctx)
	defer stop()
	for response := range client.Watch(gone, "left", clientv3.WithRev(told.Revision), clientv3.WithFilterPut()) {
		if len(response.Events) > 0 {
			break
		}
	}
	if err := expect(ctx, client, "kept", "x"); err != nil {
		return err
	}
	if _, err := client.KeepAliveOnce(ctx, left.ID); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("a lease that has ended is kept: %w", err)
	}
	if _, err := client.Revoke(ctx, kept.ID); err != nil {
		return err
	}
	if got, err := client.Get(ctx, "kept"); err != nil || got.Count != 0 {
		return fmt.Errorf("a revoked lease leaves its key: %v %w", got, err)
	}
	if _, err := client.Revoke(ctx, kept.ID); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("revoked twice: %w", err)
	}
	_, err = client.Put(ctx, "none", "x", clientv3.WithLease(12345))
	if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("a put with no lease: %w", err)
	}
	return nil
}

// ---- Kubernetes: pages of a list at one revision, a watch from there, writes by mod revision, compaction in between

const registry = "/registry/pods/"

func kubernetes(ctx context.Context, client *clientv3.Client) error {
	const objects, page = 120, 25
	for n := range objects {
		if err := create(ctx, client, fmt.Sprintf("%sp-%03d", registry, n), "v0"); err != nil {
			return err
		}
	}
	if err := create(ctx, client, registry+"p-000", "again"); err == nil {
		return errors.New("an object was created twice")
	}
	listed, revision, err := list(ctx, client, page, func(n int) error {
		// In the middle of the list an object goes, one comes and one changes: the list does not show it.
		_, err := client.Put(ctx, fmt.Sprintf("%sp-9%02d", registry, n), "late")
		if err == nil {
			_, err = client.Delete(ctx, fmt.Sprintf("%sp-%03d", registry, 100+n))
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(listed) != objects {
		return fmt.Errorf("the list has %d objects", len(listed))
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watch := client.Watch(watching, registry, clientv3.WithPrefix(), clientv3.WithRev(revision+1), clientv3.WithPrevKV())
	for n := range objects / 2 {
		if err := update(ctx, client, fmt.Sprintf("%sp-%03d", registry, n), "v1"); err != nil {
			return err
		}
	}
	end, err := client.Put(ctx, registry+"zz-end", "end")
	if err != nil {
		return err
	}
	if err := follow(watch, listed, revision, end.Header.Revision); err != nil {
		return err
	}
	now, _, err := list(ctx, client, 1000, func(int) error { return nil })
	if err != nil {
		return err
	}
	if err := same(listed, now); err != nil {
		return err
	}
	return compact(ctx, client, revision, end.Header.Revision)
}

func create(ctx context.Context, client *clientv3.Client, key, value string) error {
	done, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, value)).Commit()
	if err == nil && !done.Succeeded {
		return fmt.Errorf("%s exists", key)
	}
	return err
}

func update(ctx context.Context, client *clientv3.Client, key, value string) error {
	got, err := client.Get(ctx, key)
	if err != nil {
		return err
	}
	if len(got.Kvs) != 1 {
		return fmt.Errorf("%s is not there", key)
	}
	put := func(revision int64) (*clientv3.TxnResponse, error) {
		return client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
			Then(clientv3.OpPut(key, value)).Else(clientv3.OpGet(key)).Commit()
	}
	stale, err := put(got.Kvs[0].ModRevision - 1)
	if err != nil || stale.Succeeded {
		return fmt.Errorf("%s was changed by a stale revision: %w", key, err)
	}
	if found := stale.Responses[0].GetResponseRange().Kvs; len(found) != 1 || string(found[0].Value) == value {
		return fmt.Errorf("%s: the other way tells %v", key, found)
	}
	done, err := put(got.Kvs[0].ModRevision)
	if err == nil && !done.Succeeded {
		return fmt.Errorf("%s was not changed", key)
	}
	return err
}

func list(
	ctx context.Context, client *clientv3.Client, page int64, between func(int) error,
) (map[string]*mvccpb.KeyValue, int64, error) {
	found := map[string]*mvccpb.KeyValue{}
	key, revision := registry, int64(0)
	for n := 0; ; n++ {
		got, err := client.Get(ctx, key, clientv3.WithRange(clientv3.GetPrefixRangeEnd(registry)),
			clientv3.WithLimit(page), clientv3.WithRev(revision))
		if err != nil {
			return nil, 0, err
		}
		if revision == 0 {
			revision = got.Header.Revision
		}
		for _, kv := range got.Kvs {
			if found[string(kv.Key)] != nil || kv.ModRevision > revision {
				return nil, 0, fmt.Errorf("%s at revision %d in a list of %d", kv.Key, kv.ModRevision, revision)
			}
			found[string(kv.Key)] = kv
		}
		if !got.More {
			return found, revision, nil
		}
		key = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
		if err := between(n); err != nil {
			return nil, 0, err
		}
	}
}

// follow carries a list on by what a watch tells, and checks that it tells each change once, in order.
func follow(watch clientv3.WatchChan, objects map[string]*mvccpb.KeyValue, revision, end int64) error {
	for response := range watch {
		if err := response.Err(); err != nil {
			return err
		}
		for _, event := range response.Events {
			key := string(event.Kv.Key)
			if event.Kv.ModRevision <= revision {
				return fmt.Errorf("%s: revision %d behind %d", key, event.Kv.ModRevision, revision)
			}
			revision = event.Kv.ModRevision
			before := objects[key]
			if (before == nil) != (event.PrevKv == nil) ||
				(before != nil && (before.ModRevision != event.PrevKv.ModRevision || string(before.Value) != string(event.PrevKv.Value))) {
				return fmt.Errorf("%s was %v, and is told to have been %v", key, before, event.PrevKv)
			}
			if event.IsCreate() != (before == nil && event.Type == clientv3.EventTypePut) {
				return fmt.Errorf("%s: created? %v", key, event)
			}
			if event.Type == clientv3.EventTypePut {
				objects[key] = event.Kv
			} else {
				delete(objects, key)
			}
			if revision == end {
				return nil
			}
		}
	}
	return errors.New("the watch ended")
}

func same(one, other map[string]*mvccpb.KeyValue) error {
	for _, pair := range [][2]map[string]*mvccpb.KeyValue{{one, other}, {other, one}} {
		var keys []string
		for key := range pair[0] {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		for _, key := range keys {
			a, b := pair[0][key], pair[1][key]
			if b == nil || a.ModRevision != b.ModRevision || a.CreateRevision != b.CreateRevision ||
				a.Version != b.Version || string(a.Value) != string(b.Value) {
				return fmt.Errorf("%s is %v by the watch and %v by the list", key, a, b)
			}
		}
	}
	return nil
}

func compact(ctx context.Context, client *clientv3.Client, old, end int64) error {
	if _, err := client.Compact(ctx, end, clientv3.WithCompactPhysical()); err != nil {
		return err
	}
	if _, err := client.Compact(ctx, end); !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compacted twice: %w", err)
	}
	if _, err := client.Compact(ctx, end+1_000_000); !errors.Is(err, rpctypes.ErrFutureRev) {
		return fmt.Errorf("compacted in the future: %w", err)
	}
	if _, err := client.Get(ctx, registry, clientv3.WithRev(old)); !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("read below the compaction: %w", err)
	}
	if _, err := client.Get(ctx, registry, clientv3.WithRev(end+1_000_000)); !errors.Is(err, rpctypes.ErrFutureRev) {
		return fmt.Errorf("read in the future: %w", err)
	}
	if _, err := client.Get(ctx, registry, clientv3.WithRev(end)); err != nil {
		return fmt.Errorf("read at the compaction: %w", err)
	}
	response := <-client.Watch(ctx, registry, clientv3.WithPrefix(), clientv3.WithRev(old))
	if response.CompactRevision != end || !errors.Is(response.Err(), rpctypes.ErrCompacted) {
		return fmt.Errorf("a watch from below the compaction: %v", response)
	}
	return nil
}

// ---- progress: a watch that has nothing to tell says how far it is

func progress(ctx context.Context, client *clientv3.Client) error {
	watching, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer stop()
	watch := client.Watch(watching, "quiet", clientv3.WithCreatedNotify())
	if response := <-watch; !response.Created {
		return fmt.Errorf("not created: %v", response)
	}
	put, err := client.Put(ctx, "loud", "x")
	if err != nil {
		return err
	}
	for {
		if err := client.RequestProgress(watching); err != nil {
			return err
		}
		response := <-watch
		if response.IsProgressNotify() && response.Header.Revision >= put.Header.Revision {
			return nil
		}
		if err := response.Err(); err != nil {
			return err
		}
	}
}

// ---- common

func together(count int, work func(int) error, then func() error) error {
	failures := make(chan error, count)
	for n := range count {
		go func() { failures <- work(n) }()
	}
	for range count {
		if err := <-failures; err != nil {
			return err
		}
	}
	return then()
}

func expect(ctx context.Context, client *clientv3.Client, key, value string) error {
	got, err := client.Get(ctx, key)
	if err != nil {
		return err
	}
	if len(got.Kvs) != 1 || string(got.Kvs[0].Value) != value {
		return fmt.Errorf("%s is %v, not %s", key, got.Kvs, value)
	}
	return nil
}
