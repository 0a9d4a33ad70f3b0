// go: github.com/hibiken/asynq@v0.25.1
//
// asynq. Follows protocol.py, like the peers in Python; it is a single file because it is built where its packages are.

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
)

const (
	digits      = 13  // of the due time in ms since 1970 at the start of a payload
	warmUp      = 200 // messages sent before the clock starts
	settle      = 1200 * time.Millisecond // for the last acks
	concurrency = 50
	senders     = 32 // for fill, as there is no bulk call
)

type options struct {
	url, setting             string
	messages, size           int
	delay, over, after, wait float64
}

type arrival struct {
	atMs float64
	due  string
}

func main() {
	if len(os.Args) < 2 {
		fail("which verb?")
	}
	var given options
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	flags.StringVar(&given.url, "url", "redis://127.0.0.1:6379/0", "")
	flags.StringVar(&given.setting, "setting", "throughput", "")
	flags.IntVar(&given.messages, "messages", 1000, "")
	flags.IntVar(&given.size, "size", 100, "bytes per payload")
	flags.Float64Var(&given.delay, "delay", 60, "seconds")
	flags.Float64Var(&given.over, "over", 10, "seconds")
	flags.Float64Var(&given.after, "after", 5, "seconds")
	flags.Float64Var(&given.wait, "wait", 120, "seconds without a message after which consume gives up")
	check(flags.Parse(os.Args[2:]))
	switch os.Args[1] {
	case "describe":
		say(describe())
	case "send-one":
		say(sendOne(given))
	case "send-bulk":
		say(map[string]any{"unsupported": noBulk})
	case "fill":
		fill(given, func(int) int64 { return dueIn(given.delay) })
	case "trickle":
		start := nowMs() + given.after*1000
		fill(given, func(place int) int64 {
			return int64(start + given.over*1000*float64(place)/float64(given.messages))
		})
	case "consume":
		consume(given)
	default:
		fail("no verb " + os.Args[1])
	}
}

const noBulk = "tasks are enqueued one by one"

func describe() map[string]any {
	return map[string]any{
		"peer": "asynq", "version": "0.25.1", "language": "Go", "bulk": false,
		"throughput": fmt.Sprintf("Concurrency %d (the default is the number of cores), DelayedTaskCheckInterval 10 ms instead of 5 s", concurrency),
		"latency":    "the same, with DelayedTaskCheckInterval and TaskCheckInterval at 1 ms instead of 5 s and 1 s",
		"note":       "Completed tasks are not retained, which is the default.",
	}
}

func connect(given options) asynq.RedisConnOpt {
	found, err := asynq.ParseRedisURI(given.url)
	check(err)
	return found
}

func send(client *asynq.Client, size int, due int64) {
	payload := strconv.FormatInt(due, 10) + strings.Repeat("x", size-digits)
	_, err := client.Enqueue(asynq.NewTask("handle", []byte(payload)), asynq.ProcessAt(time.UnixMilli(due)))
	check(err)
}

func sendOne(given options) map[string]any {
	client := asynq.NewClient(connect(given))
	defer client.Close()
	for range warmUp {
		send(client, given.size, dueIn(given.delay))
	}
	started := time.Now()
	for range given.messages {
		send(client, given.size, dueIn(given.delay))
	}
	return map[string]any{"seconds": time.Since(started).Seconds(), "messages": given.messages}
}

func fill(given options, due func(int) int64) {
	client := asynq.NewClient(connect(given))
	defer client.Close()
	places := make(chan int)
	var running sync.WaitGroup
	for range senders {
		running.Add(1)
		go func() {
			defer running.Done()
			for place := range places {
				send(client, given.size, due(place))
			}
		}()
	}
	for place := range given.messages {
		places <- place
	}
	close(places)
	running.Wait()
	say(map[string]any{"messages": given.messages})
}

func consume(given options) {
	var lock sync.Mutex
	var handled []arrival
	newest, full := time.Now(), make(chan struct{})
	handle := func(_ context.Context, task *asynq.Task) error {
		at := nowMs()
		lock.Lock()
		defer lock.Unlock()
		handled = append(handled, arrival{at, string(task.Payload()[:digits])})
		newest = time.Now()
		if len(handled) == given.messages {
			close(full)
		}
		return nil
	}
	config := asynq.Config{
		Concurrency: concurrency, LogLevel: asynq.FatalLevel, DelayedTaskCheckInterval: 10 * time.Millisecond,
	}
	if given.setting == "latency" {
		config.DelayedTaskCheckInterval, config.TaskCheckInterval = time.Millisecond, time.Millisecond
	}
	check(asynq.NewServer(connect(given), config).Start(asynq.HandlerFunc(handle)))
	atReady := cpuSeconds()
	fmt.Println("ready")
	for over := false; !over; {
		lock.Lock()
		left := time.Until(newest.Add(time.Duration(given.wait * float64(time.Second))))
		lock.Unlock()
		select {
		case <-full:
			over = true
		case <-time.After(max(left, time.Millisecond)):
			lock.Lock()
			over = time.Since(newest).Seconds() >= given.wait
			lock.Unlock()
		}
	}
	cpu := cpuSeconds()
	time.Sleep(settle)
	lock.Lock()
	defer lock.Unlock()
	say(report(handled, cpu, atReady))
}

func report(handled []arrival, cpu, atReady float64) map[string]any {
	times, late := []float64{}, []float64{}
	for _, each := range handled {
		due, err := strconv.ParseFloat(each.due, 64)
		check(err)
		times, late = append(times, each.atMs/1000), append(late, each.atMs-due)
	}
	sort.Float64s(times)
	found := map[string]any{
		"messages": len(times), "first": nil, "warm": nil, "last": nil,
		"lateness_ms": late, "cpu_seconds": cpu, "cpu_at_ready": atReady,
	}
	if len(times) > 0 {
		found["first"], found["last"] = times[0], times[len(times)-1]
		found["warm"] = times[(len(times)+9)/10-1]
	}
	return found
}

func dueIn(seconds float64) int64 { return int64(nowMs() + seconds*1000) }

func nowMs() float64 { return float64(time.Now().UnixNano()) / 1e6 }

func cpuSeconds() float64 {
	var used syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

func say(answer map[string]any) {
	check(json.NewEncoder(os.Stdout).Encode(answer))
}

func check(err error) {
	if err != nil {
		fail(err.Error())
	}
}

func fail(why string) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(1)
}
