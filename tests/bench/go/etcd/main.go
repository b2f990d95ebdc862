// etcd as a peer of the store's bench.
//
//	etcd-peer serve FLAGS...                                    one server, as its released binary would run it
//	etcd-peer fill --endpoints E --keys N --size BYTES          write every key once
//	etcd-peer load --endpoints E --op put|get --callers N ...   keep N calls in flight for a while
//	etcd-peer failover --endpoints E --pids P                   kill the leader under eight writers
//
// Everything but serve prints one JSON line. Gets are linearizable, as etcd's are by default; callers share at most
// eight connections, spread over all servers.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"go.uber.org/zap"
)

const (
	connectionsMax   = 8
	fillers          = 64
	failoverWriters  = 8
	failoverWarm     = time.Second
	failoverPutLimit = 100 * time.Millisecond // Bounds what a put that was sent to a dead server hides.
	failoverLimit    = 30 * time.Second
)

type options struct {
	endpoints string
	op        string
	callers   int
	seconds   float64
	keys      int
	size      int
	pids      string
}

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("usage: etcd-peer serve|fill|load|failover ..."))
	}
	if os.Args[1] == "serve" {
		etcdmain.Main(os.Args[1:])
		return
	}
	var opts options
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	flags.StringVar(&opts.endpoints, "endpoints", "", "host:port,...")
	flags.StringVar(&opts.op, "op", "put", "put or get")
	flags.IntVar(&opts.callers, "callers", 1, "calls in flight")
	flags.Float64Var(&opts.seconds, "seconds", 5, "duration")
	flags.IntVar(&opts.keys, "keys", 10_000, "number of keys")
	flags.IntVar(&opts.size, "size", 256, "bytes of a value")
	flags.StringVar(&opts.pids, "pids", "", "of the servers, in the order of the endpoints")
	_ = flags.Parse(os.Args[2:])
	switch os.Args[1] {
	case "fill":
		fill(opts)
	case "load":
		load(opts)
	case "failover":
		failover(opts)
	default:
		fail(fmt.Errorf("unknown command %q", os.Args[1]))
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func tell(values map[string]any) {
	if err := json.NewEncoder(os.Stdout).Encode(values); err != nil {
		fail(err)
	}
}

func connect(endpoints ...string) *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   endpoints,
		DialTimeout: 10 * time.Second,
		Logger:      zap.NewNop(),
	})
	if err != nil {
		fail(err)
	}
	return client
}

func (o options) list() []string { return strings.Split(o.endpoints, ",") }

func (o options) value() string {
	bytes := make([]byte, o.size)
	rand.Read(bytes)
	return string(bytes)
}

func key(number int) string { return fmt.Sprintf("key-%05d", number) }

func fill(opts options) {
	client, value := connect(opts.list()...), opts.value()
	defer client.Close()
	var group sync.WaitGroup
	for filler := range fillers {
		group.Go(func() {
			for number := filler; number < opts.keys; number += fillers {
				if _, err := client.Put(context.Background(), key(number), value); err != nil {
					fail(err)
				}
			}
		})
	}
	group.Wait()
	tell(map[string]any{"keys": opts.keys})
}

func load(opts options) {
	value := opts.value()
	clients := make([]*clientv3.Client, min(opts.callers, connectionsMax))
	for number := range clients {
		clients[number] = connect(opts.list()...)
		defer clients[number].Close()
		if _, err := clients[number].Get(context.Background(), key(0)); err != nil { // Connect, and be served.
			fail(err)
		}
	}
	taken := make([][]time.Duration, opts.callers)
	used := usedSeconds()
	began := time.Now()
	end := began.Add(time.Duration(opts.seconds * float64(time.Second)))
	var group sync.WaitGroup
	for caller := range opts.callers {
		group.Go(func() {
			client, random := clients[caller%len(clients)], rand.New(rand.NewSource(int64(caller)))
			for at := time.Now(); at.Before(end); {
				name := key(random.Intn(opts.keys))
				var err error
				if opts.op == "get" {
					_, err = client.Get(context.Background(), name)
				} else {
					_, err = client.Put(context.Background(), name, value)
				}
				if err != nil {
					fail(err)
				}
				now := time.Now()
				taken[caller] = append(taken[caller], now.Sub(at))
				at = now
			}
		})
	}
	group.Wait()
	seconds := time.Since(began).Seconds()
	all := slices.Concat(taken...)
	slices.Sort(all)
	tell(map[string]any{
		"per_s":  float64(len(all)) / seconds,
		"p50_ms": float64(all[len(all)/2].Microseconds()) / 1000,
		"p99_ms": float64(all[len(all)*99/100].Microseconds()) / 1000,
		"cpu_s":  usedSeconds() - used,
	})
}

// usedSeconds returns the processor time that this process has used.
func usedSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

// leader returns the index of the endpoint that leads.
func leader(opts options) int {
	for {
		for index, endpoint := range opts.list() {
			client := connect(endpoint)
			limit, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			status, err := client.Status(limit, endpoint)
			cancel()
			client.Close()
			if err == nil && status.Leader != 0 && status.Leader == status.Header.MemberId {
				return index
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// failover kills the leader and tells how long it took until a put that began afterwards was acknowledged.
func failover(opts options) {
	index, value := leader(opts), opts.value()
	pid, err := strconv.Atoi(strings.Split(opts.pids, ",")[index])
	if err != nil {
		fail(err)
	}
	var isOver atomic.Bool
	var killedAt, ackedAt atomic.Int64
	start := time.Now()
	var group sync.WaitGroup
	for writer := range failoverWriters {
		group.Go(func() {
			client := connect(opts.list()...)
			defer client.Close()
			time.Sleep(failoverPutLimit * time.Duration(writer) / failoverWriters) // Their time limits end in turn.
			for !isOver.Load() {
				begun := int64(time.Since(start))
				limit, cancel := context.WithTimeout(context.Background(), failoverPutLimit)
				_, err := client.Put(limit, key(writer), value)
				cancel()
				if killed := killedAt.Load(); err == nil && killed != 0 && begun > killed {
					ackedAt.CompareAndSwap(0, int64(time.Since(start)))
				}
			}
		})
	}
	time.Sleep(failoverWarm)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		fail(err)
	}
	killedAt.Store(int64(time.Since(start)))
	for ackedAt.Load() == 0 && time.Since(start) < failoverLimit {
		time.Sleep(time.Millisecond)
	}
	if ackedAt.Load() == 0 {
		fail(fmt.Errorf("no put was acknowledged within %s", failoverLimit))
	}
	isOver.Store(true)
	group.Wait()
	tell(map[string]any{"seconds": time.Duration(ackedAt.Load() - killedAt.Load()).Seconds(), "killed": index})
}
