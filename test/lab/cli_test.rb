# frozen_string_literal: true

require "test_helper"
require "json"
require "open3"
require "stringio"
require "tmpdir"
require "heddle/lab"

class LabCLITest < Minitest::Test
  EXE = File.expand_path("../../exe/heddle", __dir__)

  def cli(*argv)
    out, err = StringIO.new, StringIO.new
    [Heddle::Lab::CLI.run(argv, out: out, err: err), out.string, err.string]
  end

  def test_help
    benches = %w[delay scheduler s3 names deadlines http report doctor].map { |name| ["bench", name] }
    [[], ["bench"], *benches, ["serve"]].each do |argv|
      status, out, = cli(*argv, "--help")
      assert_equal 0, status
      assert_match(/Usage: heddle/, out)
    end
    _, list, = cli("bench", "list")
    assert_match(/^delay .*\n^scheduler /, list)
  end

  def test_wrong_command_lines_list_the_choices
    {
      [] => /no command given/, %w[brew] => /unknown command "brew"; the commands are bench, compare, report and serve/,
      %w[bench] => /no bench given; the benches are delay, scheduler/,
      %w[bench tea] => /unknown bench "tea"; choose from delay, scheduler/,
      %w[bench delay --models tea] => /unknown model "tea"; choose from blocking, threads/,
      %w[bench delay --models heddle@kqueue] => /unknown backend "kqueue"/,
      %w[bench delay --rounds 0] => /--rounds must be at least 1/,
      %w[bench delay --requests 0] => /--requests must be at least 1/,
      %w[bench delay --delays soon] => /--delays takes milliseconds, not "soon"/,
      %w[bench delay --delays -5] => /--delays takes milliseconds/,
      %w[bench delay --deadline 0] => /--deadline must be above 0/,
      %w[bench delay --nope] => /invalid option: --nope/, %w[bench delay extra] => /unexpected argument "extra"/,
      %w[bench delay -o xml] => /invalid argument: -o xml/,
      %w[bench scheduler --operations tea] => /unknown operation "tea"/,
      %w[bench scheduler --scale 0] => /--scale must be above 0/,
      %w[bench doctor tea] => /unknown bench "tea"; choose from delay, scheduler/,
      %w[serve extra] => /unexpected argument "extra"/
    }.each do |argv, message|
      status, out, err = cli(*argv)
      assert_equal [64, ""], [status, out], argv.inspect
      assert_match message, err
    end
  end

  def test_the_doctor_checks_the_machine_and_the_installed_peers
    status, out, err = cli("bench", "doctor", "stall")
    assert_equal [0, ""], [status, err]
    assert_match(/^This machine\n  .*\nWhat to mend\n.*\nModels\n(  stall \S+: .+\n)+\z/m, out)
  end

  def test_what_makes_a_machine_unfit
    fit = {"cores" => 2, "pinned" => "client to core 0, server to core 1", "load_before" => "0.10 0.77 2.84",
           "governor" => "performance", "descriptors" => 20_000}
    assert_empty Heddle::Lab::Environment.doubts(fit)
    unfit = {"cores" => 1, "pinned" => "no", "load_before" => "1.13 0.77 2.84", "governor" => "powersave",
             "descriptors" => 1024}
    unfit.each { |key, value| assert_equal 1, Heddle::Lab::Environment.doubts(fit.merge(key => value)).size, key }
  end

  def test_a_delay_bench_writes_everything
    Dir.mktmpdir do |directory|
      argv = %w[
        bench delay --requests 20 --delays 0,20 --models blocking,threads,threads:5 --rounds 1 --seed 4 -o json --name
        trial --out
      ]
      status, out, err = cli(*argv, directory, "--html", File.join(directory, "trial.html"))
      assert_equal [0, ""], [status, err]
      record = JSON.parse(out)
      assert_equal record, JSON.parse(File.read(File.join(directory, "trial.json")))
      assert_equal %w[trial.html trial.json trial.md], Dir.children(directory).sort
      assert_equal record["rounds"].size, File.foreach(File.join(directory, "trial.json")).grep(/\A\{"round":/).size
      assert_equal [20, 0], record["rounds"].first["measures"].values_at("operations", "errors")
      assert_includes File.read(File.join(directory, "trial.html")), record["rounds"].last["model"]
      markdown = File.read(File.join(directory, "trial.md"))
      assert_includes markdown, "heddle bench delay --requests 20 --delays 0,20"
      assert_includes markdown, "NeverBlock, 2009"
      drawn = %w[rate advantage].map { |graph| File.join(directory, "trial-#{graph}.svg") }
      assert_equal [0, "#{drawn.join("\n")}\n", ""],
        cli("bench", "draw", File.join(directory, "trial.json"), "--out", directory)
      drawn.each { |path| assert_includes File.read(path), "<svg" }
    end
  end

  def test_a_slow_blocking_cell_is_a_sample
    _, out, = cli(*%w[bench delay --requests 30 --delays 250 --models blocking --rounds 1])
    assert_match(/blocking +[34]\.\d\d \(.*\)\*/, out)
    assert_includes out, "* extrapolated from a smaller sample"
  end

  def test_a_missing_server_is_a_row_with_an_error
    port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
    status, out, err = cli(*%w[bench delay --requests 5 --delays 0 --models blocking --rounds 1 --port], port.to_s)
    assert_equal 1, status
    assert_match(/5 errors, the first: Errno::ECONNREFUSED/, out)
    assert_equal "heddle: measurements of blocking failed; the report says how\n", err
  end

  # A program that runs the benches must not fail because another library does.
  def test_a_failing_peer_is_a_row_and_not_a_failure
    port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
    status, out, err = cli(*%w[bench delay --requests 5 --delays 0 --models async --rounds 1 --port], port.to_s)
    assert_match(/5 errors, the first: Errno::ECONNREFUSED/, out)
    assert_equal [0, "heddle: measurements of async failed; the report says how\n"], [status, err]
  end

  def test_peers_are_models
    Heddle::Lab::Bench.all.each_value { |bench| assert_empty bench.peers - bench.kinds.keys, bench.id }
  end

  def test_serve
    Open3.popen2(EXE, "serve") do |_, out, process|
      port = out.gets[/\Alistening on 127\.0\.0\.1:(\d+)$/, 1]
      answer = TCPSocket.open("127.0.0.1", port) do |socket|
        socket.write("GET /1 HTTP/1.0\r\n\r\n")
        socket.read
      end
      assert_match(/done\z/, answer)
      Process.kill(:TERM, process.pid)
      assert process.value.success?
    end
  end

  def test_serve_as_a_proxy
    Heddle::Lab::LoadServer.start do |server|
      Open3.popen2(EXE, "serve", "--proxy", "127.0.0.1:#{server.port}", "--stall-at", "5",
        "--control") do |input, out, process|
        port = out.gets[/\Alistening on 127\.0\.0\.1:(\d+)$/, 1]
        TCPSocket.open("127.0.0.1", port) do |socket|
          socket.write("GET /1 HTTP/1.0\r\n\r\n")
          assert_equal "HTTP/", socket.readpartial(100)
          refute socket.wait_readable(0.2)
          input.puts "pass"
          assert_equal "ok\n", out.gets
          assert_match(/\A1\.1 200 OK.*done\z/m, socket.read)
        end
        Process.kill(:TERM, process.pid)
        assert process.value.success?
      end
    end
  end

  def test_the_command_runs_from_anywhere
    out, status = Open3.capture2(EXE, "bench", "list", chdir: "/")
    assert status.success?
    assert_includes out, "delay"
  end
end
