package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
)

func init() {
	parts["served-locks"] = servedLocks
	parts["served-elections"] = servedElections
}

// ---- the Lock service and the client's own mutex, one beside the other under one name

func servedLocks(ctx context.Context, client *clientv3.Client) error {
	const workers, rounds = 4, 6
	service := v3lockpb.NewLockClient(client.ActiveConnection())
	if _, err := client.Put(ctx, "counter", "0"); err != nil {
		return err
	}
	err := together(workers, func(n int) error {
		session, err := concurrency.NewSession(client, concurrency.WithTTL(20))
		if err != nil {
			return err
		}
		defer session.Close()
		mutex := concurrency.NewMutex(session, "served/lock")
		for range rounds {
			var key []byte
			if n%2 == 0 {
				held, err := service.Lock(ctx, &v3lockpb.LockRequest{Name: []byte("served/lock"), Lease: int64(session.Lease())})
				if err != nil {
					return err
				}
				if want := fmt.Sprintf("served/lock/%x", session.Lease()); string(held.Key) != want {
					return fmt.Errorf("the key is %q, not %q", held.Key, want)
				}
				key = held.Key
			} else if err := mutex.Lock(ctx); err != nil {
				return err
			}
			if err := raise(ctx, client, "counter"); err != nil {
				return err
			}
			if key != nil {
				_, err = service.Unlock(ctx, &v3lockpb.UnlockRequest{Key: key})
			} else {
				err = mutex.Unlock(ctx)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}, func() error { return expect(ctx, client, "counter", strconv.Itoa(workers*rounds)) })
	if err != nil {
		return err
	}
	return lockEnds(ctx, client, service)
}

func raise(ctx context.Context, client *clientv3.Client, key string) error {
	got, err := client.Get(ctx, key)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(string(got.Kvs[0].Value))
	if err != nil {
		return err
	}
	_, err = client.Put(ctx, key, strconv.Itoa(number+1))
	return err
}

// lockEnds: a lock without a lease has one, who gives up waiting leaves the queue, an unknown lease is told.
func lockEnds(ctx context.Context, client *clientv3.Client, service v3lockpb.LockClient) error {
	name := []byte("served/other")
	held, err := service.Lock(ctx, &v3lockpb.LockRequest{Name: name})
	if err != nil {
		return err
	}
	again, stop := context.WithTimeout(ctx, 500*time.Millisecond)
	defer stop()
	if _, err := service.Lock(again, &v3lockpb.LockRequest{Name: name}); err == nil {
		return errors.New("a lock was given twice")
	}
	for {
		got, err := client.Get(ctx, "served/other/", clientv3.WithPrefix())
		if err != nil {
			return err
		}
		if got.Count == 1 {
			if string(got.Kvs[0].Key) != string(held.Key) || got.Kvs[0].Lease == 0 {
				return fmt.Errorf("the holder is %v", got.Kvs[0])
			}
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	_, err = service.Lock(ctx, &v3lockpb.LockRequest{Name: name, Lease: 4711})
	if err == nil || !strings.Contains(err.Error(), "requested lease not found") {
		return fmt.Errorf("a lock with no lease: %v", err)
	}
	_, err = service.Unlock(ctx, &v3lockpb.UnlockRequest{Key: held.Key})
	return err
}

// ---- the Election service and the client's own elections

func servedElections(ctx context.Context, client *clientv3.Client) error {
	service := v3electionpb.NewElectionClient(client.ActiveConnection())
	name := []byte("served/election")
	if _, err := service.Leader(ctx, &v3electionpb.LeaderRequest{Name: name}); err == nil || !strings.Contains(err.Error(), "election: no leader") {
		return fmt.Errorf("nobody leads: %v", err)
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	observed, err := service.Observe(watching, &v3electionpb.LeaderRequest{Name: name})
	if err != nil {
		return err
	}
	sees := func(value string) error {
		told, err := observed.Recv()
		if err == nil && string(told.Kv.Value) != value {
			return fmt.Errorf("told of %q, not %q", told.Kv.Value, value)
		}
		return err
	}
	elected, err := service.Campaign(ctx, &v3electionpb.CampaignRequest{Name: name, Value: []byte("one")})
	if err != nil {
		return err
	}
	if err := sees("one"); err != nil {
		return err
	}
	if _, err := service.Proclaim(ctx, &v3electionpb.ProclaimRequest{Leader: elected.Leader, Value: []byte("more")}); err != nil {
		return err
	}
	if err := sees("more"); err != nil {
		return err
	}
	session, err := concurrency.NewSession(client, concurrency.WithTTL(20))
	if err != nil {
		return err
	}
	defer session.Close()
	election := concurrency.NewElection(session, string(name))
	leads := make(chan error, 1)
	go func() { leads <- election.Campaign(ctx, "two") }()
	for {
		got, err := client.Get(ctx, "served/election/", clientv3.WithPrefix())
		if err != nil {
			return err
		}
		if got.Count == 2 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if _, err := service.Resign(ctx, &v3electionpb.ResignRequest{Leader: elected.Leader}); err != nil {
		return err
	}
	if err := <-leads; err != nil {
		return err
	}
	if err := sees("two"); err != nil {
		return err
	}
	told, err := service.Leader(ctx, &v3electionpb.LeaderRequest{Name: name})
	if err != nil || string(told.Kv.Key) != election.Key() {
		return fmt.Errorf("%v leads: %w", told, err)
	}
	_, err = service.Proclaim(ctx, &v3electionpb.ProclaimRequest{Leader: elected.Leader, Value: []byte("late")})
	if err == nil || !strings.Contains(err.Error(), "election: not leader") {
		return fmt.Errorf("who has resigned is heard: %v", err)
	}
	_, err = service.Resign(ctx, &v3electionpb.ResignRequest{})
	if err == nil || !strings.Contains(err.Error(), `"leader" field must be provided`) {
		return fmt.Errorf("nobody resigned: %v", err)
	}
	return election.Resign(ctx)
}
