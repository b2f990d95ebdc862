// Clients that read, write, remove and compare a few keys while replicas are killed and stopped; the history of what they
// saw has to be linearizable, and a watch has to tell each write once, in order.
//
//	linear ENDPOINTS OPERATIONS
//
// It says "step" each time that a third of the operations is done, and in the end how many there were.
package main

import (
	"context"
	"fmt"
	"math"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	clients = 8
	keys    = 5
	prefix  = "linear/"
)

type input struct {
	kind, key, value, expected string
}

type output struct {
	value   string
	matched bool
	unknown bool
}

var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, one := range history {
			key := one.Input.(input).key
			byKey[key] = append(byKey[key], one)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() interface{} { return "" },
	Step: func(state, in, out interface{}) (bool, interface{}) {
		value, asked, told := state.(string), in.(input), out.(output)
		switch asked.kind {
		case "get":
			return told.unknown || told.value == value, value
		case "put":
			return true, asked.value
		case "delete":
			return told.unknown || told.matched == (value != ""), ""
		}
		matches := value == asked.expected
		if !told.unknown && told.matched != matches {
			return false, value
		}
		if matches {
			return true, asked.value
		}
		return told.unknown || told.value == value, value
	},
}

func valueOf(response *clientv3.GetResponse) string {
	if len(response.Kvs) == 0 {
		return ""
	}
	return string(response.Kvs[0].Value)
}

func call(client *clientv3.Client, asked input) (output, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	switch asked.kind {
	case "get":
		response, err := client.Get(ctx, asked.key)
		if err != nil {
			return output{}, err
		}
		return output{value: valueOf(response)}, nil
	case "put":
		_, err := client.Put(ctx, asked.key, asked.value)
		return output{}, err
	case "delete":
		response, err := client.Delete(ctx, asked.key)
		if err != nil {
			return output{}, err
		}
		return output{matched: response.Deleted == 1}, nil
	}
	compare := clientv3.Compare(clientv3.Value(asked.key), "=", asked.expected)
	if asked.expected == "" {
		compare = clientv3.Compare(clientv3.CreateRevision(asked.key), "=", 0)
	}
	response, err := client.Txn(ctx).If(compare).Then(clientv3.OpPut(asked.key, asked.value)).
		Else(clientv3.OpGet(asked.key)).Commit()
	if err != nil {
		return output{}, err
	}
	if response.Succeeded {
		return output{matched: true}, nil
	}
	found := (*clientv3.GetResponse)(response.Responses[0].GetResponseRange())
	return output{value: valueOf(found)}, nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func connect(endpoints []string) *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second})
	if err != nil {
		fail(err)
	}
	return client
}

func main() {
	endpoints := strings.Split(os.Args[1], ",")
	wanted, err := strconv.ParseInt(os.Args[2], 10, 64)
	if err != nil {
		fail(err)
	}
	watching, stop := context.WithCancel(context.Background())
	watcher := connect(endpoints)
	begin, err := watcher.Put(watching, "begin", "")
	if err != nil {
		fail(err)
	}
	changes := watcher.Watch(watching, prefix, clientv3.WithPrefix(), clientv3.WithRev(begin.Header.Revision+1))
	var history []porcupine.Operation
	var lock sync.Mutex
	var done, unknown atomic.Int64
	var group sync.WaitGroup
	start := time.Now()
	for id := 0; id < clients; id++ {
		group.Add(1)
		go func() {
			defer group.Done()
			client, rng, last := connect(endpoints), rand.New(rand.NewSource(int64(id))), map[string]string{}
			defer client.Close()
			for number := 0; done.Load() < wanted; number++ {
				key := prefix + strconv.Itoa(rng.Intn(keys))
				kinds := []string{"get", "get", "put", "put", "txn", "txn", "txn", "delete"}
				asked := input{kinds[rng.Intn(len(kinds))], key, fmt.Sprintf("%d-%d", id, number), last[key]}
				called := time.Since(start).Nanoseconds()
				told, err := call(client, asked)
				returned := time.Since(start).Nanoseconds()
				if err != nil {
					unknown.Add(1)
					if asked.kind == "get" {
						continue
					}
					told, returned = output{unknown: true}, math.MaxInt64
				}
				if asked.kind == "get" || (asked.kind == "txn" && !told.matched && err == nil) {
					last[key] = told.value
				}
				lock.Lock()
				history = append(history, porcupine.Operation{ClientId: id, Input: asked, Call: called, Output: told, Return: returned})
				lock.Unlock()
				if count := done.Add(1); count%(wanted/3) == 0 {
					fmt.Println("step")
				}
			}
		}()
	}
	group.Wait()
	end, err := watcher.Put(watching, prefix+"end", "")
	if err != nil {
		fail(err)
	}
	written, revision := map[string]int{}, int64(0)
	for revision < end.Header.Revision {
		told, open := <-changes
		if !open || told.Err() != nil {
			fail(fmt.Errorf("the watch has ended: %v", told.Err()))
		}
		for _, event := range told.Events {
			if event.Kv.ModRevision <= revision {
				fail(fmt.Errorf("the watch tells of revision %d after %d", event.Kv.ModRevision, revision))
			}
			revision = event.Kv.ModRevision
			if event.Type == clientv3.EventTypePut {
				written[string(event.Kv.Key)+"="+string(event.Kv.Value)]++
			}
		}
	}
	stop()
	for _, one := range history {
		asked, told := one.Input.(input), one.Output.(output)
		if asked.kind != "put" && asked.kind != "txn" {
			continue
		}
		times := written[asked.key+"="+asked.value]
		mayBe := told.unknown || times == 1
		if asked.kind == "txn" && !told.unknown && !told.matched {
			mayBe = times == 0
		}
		if times > 1 || !mayBe {
			fail(fmt.Errorf("the watch tells %d times of %+v, which was told %+v", times, asked, told))
		}
	}
	switch porcupine.CheckOperationsTimeout(model, history, 5*time.Minute) {
	case porcupine.Ok:
		fmt.Printf("linearizable: %d operations, %d of them without an answer\n", len(history), unknown.Load())
	case porcupine.Unknown:
		fail(fmt.Errorf("%d operations could not be checked in time", len(history)))
	default:
		fail(fmt.Errorf("%d operations are not linearizable", len(history)))
	}
}
