// Load of unary puts on a replica, by gRPC's client in Go, as etcd's load has it.
//
//	unary-peer --address HOST:PORT --log NAME --command HEX --key KEY --keys N --callers N --seconds S
//
// Callers share at most eight connections; each has a session of its own and one call outstanding. `--command` is the
// command of a put of `--key`, whose five last characters each call replaces by a number. It prints one JSON line;
// `cpu_s` is what this process has used.
package main

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	connectionsMax = 8
	method         = "/rsm.store.v1.Replica/Call"
	limit          = 30 * time.Second
	digits         = 5
)

// Fields of the messages Requests and Answers of store.proto.
const (
	messageID    = 1
	log          = 2
	session      = 3
	openSession  = 4
	answeredUpTo = 5
	sequences    = 6
	commands     = 7
	statuses     = 2
)

// raw passes messages on as the bytes that they are.
type raw struct{}

func (raw) Name() string                  { return "proto" }
func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(data)
	return nil
}

func main() {
	address := flag.String("address", "", "host:port")
	name := flag.String("log", "", "name of the log")
	hexed := flag.String("command", "", "command of a put")
	key := flag.String("key", "", "its key")
	keys := flag.Int("keys", 10_000, "number of keys")
	callers := flag.Int("callers", 1, "calls in flight")
	seconds := flag.Float64("seconds", 5, "duration")
	flag.Parse()
	command, err := hex.DecodeString(*hexed)
	place := bytes.Index(command, []byte(*key))
	if err != nil || place < 0 {
		fail(fmt.Errorf("--command is no put of %q", *key))
	}
	place += len(*key) - digits
	connections := make([]*grpc.ClientConn, min(*callers, connectionsMax))
	for number := range connections {
		connections[number], err = grpc.NewClient(*address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			fail(err)
		}
		defer connections[number].Close()
	}
	senders := make([]*sender, *callers)
	for number := range senders {
		senders[number] = &sender{
			connection: connections[number%len(connections)],
			log:        *name,
			session:    make([]byte, 16),
			command:    bytes.Clone(command),
			place:      place,
		}
		_, _ = crand.Read(senders[number].session)
		senders[number].put(0) // Connect, and open the session.
	}
	taken := make([][]time.Duration, *callers)
	used := usedSeconds()
	began := time.Now()
	end := began.Add(time.Duration(*seconds * float64(time.Second)))
	var group sync.WaitGroup
	for number, sender := range senders {
		group.Go(func() {
			random := rand.New(rand.NewSource(int64(number)))
			for at := time.Now(); at.Before(end); {
				sender.put(random.Intn(*keys))
				now := time.Now()
				taken[number] = append(taken[number], now.Sub(at))
				at = now
			}
		})
	}
	group.Wait()
	took := time.Since(began).Seconds()
	all := slices.Concat(taken...)
	slices.Sort(all)
	tell(map[string]any{
		"per_s":  float64(len(all)) / took,
		"p50_ms": float64(all[len(all)/2].Microseconds()) / 1000,
		"p99_ms": float64(all[len(all)*99/100].Microseconds()) / 1000,
		"cpu_s":  usedSeconds() - used,
	})
}

type sender struct {
	connection *grpc.ClientConn
	log        string
	session    []byte
	command    []byte
	place      int
	sequence   uint64
}

func (s *sender) put(number int) {
	copy(s.command[s.place:], fmt.Sprintf("%0*d", digits, number))
	s.sequence++
	request := s.request()
	var answer []byte
	late, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := s.connection.Invoke(late, method, &request, &answer, grpc.ForceCodec(raw{})); err != nil {
		fail(err)
	}
	if isRefused(answer) {
		fail(fmt.Errorf("a put was refused: %x", answer))
	}
}

func (s *sender) request() []byte {
	text := protowire.AppendTag(nil, messageID, protowire.VarintType)
	text = protowire.AppendVarint(text, s.sequence)
	text = protowire.AppendTag(text, log, protowire.BytesType)
	text = protowire.AppendString(text, s.log)
	text = protowire.AppendTag(text, session, protowire.BytesType)
	text = protowire.AppendBytes(text, s.session)
	if s.sequence == 1 {
		text = protowire.AppendTag(text, openSession, protowire.VarintType)
		text = protowire.AppendVarint(text, 1)
	} else {
		text = protowire.AppendTag(text, answeredUpTo, protowire.VarintType)
		text = protowire.AppendVarint(text, s.sequence-1)
	}
	text = protowire.AppendTag(text, sequences, protowire.BytesType)
	text = protowire.AppendBytes(text, protowire.AppendVarint(nil, s.sequence))
	text = protowire.AppendTag(text, commands, protowire.BytesType)
	return protowire.AppendBytes(text, s.command)
}

// isRefused tells whether an answer has statuses: they are left out where all is well.
func isRefused(answer []byte) bool {
	for len(answer) > 0 {
		number, kind, size := protowire.ConsumeTag(answer)
		if size < 0 || number == statuses {
			return true
		}
		answer = answer[size:]
		if size = protowire.ConsumeFieldValue(number, kind, answer); size < 0 {
			return true
		}
		answer = answer[size:]
	}
	return false
}

func usedSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

func tell(values map[string]any) {
	if err := json.NewEncoder(os.Stdout).Encode(values); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
