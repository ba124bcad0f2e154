# frozen_string_literal: true

require "test_helper"
require "json"
require "rexml/document"
require "socket"
require "stringio"
require "tmpdir"
require "heddle/lab"

runs_on short: false

# `heddle bench http` and `heddle bench report`, as a whole.
class HTTPBenchTest < Minitest::Test
  hard_deadline 120

  Sheet = Heddle::Lab::Bench::HTTP::Sheet
  SEED = "Site,Impl,Test,KBytes Transferred,KBytes/second,Chunk Count,Mean Chunk Size,Max Chunk Size,Min Chunk " \
    "Size,User Time,System Time,Total CPU Time,Clock Time"
  OF_2008 = <<~CSV
    #{SEED}
    seattle,stock,1,10240,2048,7258,1444,1448,1,3.0,1.5,4.5,5.0
    seattle,stock,2,10240,2048,7258,1444,1448,1,3.0,1.0,4.0,5.0
    seattle,curb,1,10240,2048,640,16384,16384,1,0.5,0.5,1.0,5.0
    dallas,stock,1,10240,10240,7258,1444,1448,1,0.5,0.4,0.9,1.0
    dallas,curb,1,10240,10240,640,16384,16384,1,0.1,0.1,0.2,1.0
  CSV

  def cli(*argv)
    out, err = StringIO.new, StringIO.new
    [Heddle::Lab::CLI.run(argv, out: out, err: err), out.string, err.string]
  end

  def test_sites_and_the_seeds_columns
    status, out, err =
      cli(*%w[bench http --models stock,raw,rfuzz --sites local,dallas,london --size 200000 --rounds 1 --seed 3 -o csv])
    assert_equal 0, status
    assert_match(/^heddle: rfuzz: not measured: LoadError: .*\n\z/, err)
    assert_equal "#{SEED},%CPU,CPU s per GB,Operations,Allocations,Peak RSS KiB,Errors,Digest ok,Round,Twin,Busy " \
      "threads,Error,Versions", out.lines.first.chomp
    rows = Sheet.parse(out).rows
    assert_equal %w[local dallas london].product(%w[stock stock raw]), rows.map { |row| row.values_at("Site", "Impl") },
      "in the bench's order"
    rows.each do |row|
      assert_equal ["length to block", "true", "0"], row.values_at("Test", "Digest ok", "Errors")
      assert_in_delta 200_000 / 1024.0 * ((row["Site"] == "local") ? 24 : 1), row["KBytes Transferred"].to_f, 0.1
      assert_operator row["Min Chunk Size"].to_i, :<=, row["Mean Chunk Size"].to_f
    end
    stock = rows.select { |row| row["Impl"] == "stock" }.to_h { |row| [row["Site"], row["Clock Time"].to_f] }
    assert_operator stock["london"], :>=, 0.08, "London is 80 ms away"
    assert_operator stock["dallas"], :<, stock["london"]
  end

  # A far site is asked once, with nothing to use again.
  def test_persistent_connections_to_each_site
    status, out, err =
      cli(*%w[bench http --models stock,heddle-kept --sites local,dallas --size 50000 --rounds 1 -o csv])
    assert_equal [0, ""], [status, err]
    assert_equal [["0", ""]], Sheet.parse(out).rows.map { |row| row.values_at("Errors", "Error") }.uniq
  end

  def test_missing_clients_say_why
    _, out, = cli(*%w[bench http --models raw,rfuzz --sites local --size 1000 --rounds 1])
    assert_match(/^rfuzz: not measured: LoadError: rfuzz 0\.9 of 2007 is not installed: its C code is Ruby 1\.8's/, out)
  end

  def test_shapes_uploads_small_requests_and_their_graphs
    Dir.mktmpdir do |directory|
      argv = %w[
        bench http --models stock,raw --shapes length,tls --dest string --upload file --small keep-alive,option
        --requests 20 --size 50000 --rounds 1 --name t --out
      ]
      status, out, err = cli(*argv, directory)
      assert_equal [0, ""], [status, err]
      assert_match(
        /^CPU µs per request.*\n.*GET, kept alive  start with an option, GET, close\n.*\nstock .*\nraw +\S+ \S+ +–$/,
        out
      )
      assert_match(/length to string +tls to string +upload of a file/, out)
      assert_equal 0, cli("bench", "draw", File.join(directory, "t.json"), "--out", directory).first
      assert_equal %w[
        t-cpu-s-per-gb-by-implementation.svg t-cpu-s-per-gb-by-site.svg t-percent-cpu-by-implementation.svg
        t-percent-cpu-by-site.svg t.json t.md
      ],
        Dir.children(directory).sort
      assert_includes File.read(File.join(directory, "t.md")),
        "| Site | Impl | Test | KBytes Transferred | KBytes/second |"
      rounds = JSON.parse(File.read(File.join(directory, "t.json")))["rounds"]
      assert(rounds.all? { |round| round["measures"]["digest_ok"] })
    end
  end

  def test_beside_threads_that_compute
    _, out, = cli(*%w[bench http --models stock --small keep-alive --requests 3 --busy-threads 2 --rounds 1])
    assert_match(/beside 2 busy threads\n\nRequests a second/, out)
    refute_match(/CPU µs/, out)
    assert_operator out[/^stock +([\d.]+) /, 1].to_f, :<, 1000
    _, out, = cli(*%w[bench http --models heddle --small late --requests 3 --busy-threads 1 --no-pin --rounds 1])
    assert_match(/^heddle +[\d.]+ \(/, out)
    assert_operator out[/^heddle +([\d.]+) /, 1].to_f, :<, 1 / 0.06
    assert_match(/^pinned: no;/, out)
  end

  def test_any_url
    Heddle::Lab::LoadServer.start do |server|
      url = "http://127.0.0.1:#{server.port}/b/70000"
      status, out, err = cli("bench", "http", url, *%w[--models stock,raw --dest string --rounds 1 -o csv])
      assert_equal [0, ""], [status, err]
      assert_equal [[url, "stock", "true"], [url, "raw", "true"]].sort,
        Sheet.parse(out).medians.rows.map { |row| row.values_at("Site", "Impl", "Digest ok") }.sort
      status, _, err = cli("bench", "http", "http://127.0.0.1:#{server.port}/nothing", "--models", "stock")
      assert_equal [69, true], [status, err.include?("answers 404")]
    end
  end

  # The first two answers are for the comparison and the warm-up.
  def test_a_wrong_body_is_an_error
    server = TCPServer.new("127.0.0.1", 0)
    answers = 0
    thread = Thread.new do
      loop do
        socket = server.accept
        socket.gets("\r\n\r\n")
        socket.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n#{((answers += 1) > 2) ? "dome" : "done"}")
        socket.close
      end
    end
    status, out, = cli("bench", "http", "http://127.0.0.1:#{server.addr[1]}/",
      *%w[--models stock --dest string --rounds 1])
    assert_equal 1, status
    assert_match(/1 errors, the first: a body that is not the one that was sent/, out)
  ensure
    thread&.kill
    server&.close
  end

  # An accelerator that claims to be fast, and is not used.
  def test_an_inactive_accelerator_is_an_error
    Dir.mktmpdir do |directory|
      FileUtils.mkdir_p(File.join(directory, "heddle"))
      File.write(File.join(directory, "heddle/net_http.rb"), <<~RUBY)
        module Heddle
          VERSION ||= "0"
          module NetHTTP
            def self.enabled? = true
            def self.stats = {fast: 0, fallback: {"debug output" => 3}}
          end
        end
      RUBY
      Heddle::Lab::LoadServer.start do |server|
        url = "http://127.0.0.1:#{server.port}/b/100"
        params = {"what" => "download", "to" => "string", "url" => url, "direct" => url, "bytes" => 100,
                  "crc" => Zlib.crc32(Heddle::Lab::LoadServer.body(100)),
                  "repeat" => 1, "busy_threads" => 0}
        answer = Heddle::Lab::Child.new(deadline: 20, paths: [directory])
          .run({"bench" => "http", "kind" => "heddle", "params" => params})
        assert_match(/nothing went the fast way: .*debug output/, answer.fetch("measures").fetch("first_error"))
      end
    end
  end

  def test_wrong_command_lines_list_the_choices
    {
      %w[bench http --sites atlantis] => /unknown site "atlantis"; choose from local, dallas/,
      %w[bench http --shapes round] => /--shapes takes length, chunked, gzip, tls, not "round"/,
      %w[bench http --dest heap] => /--dest takes block, string, file, not "heap"/,
      %w[bench http --size 0] => /--size must be at least 1/,
      %w[bench http --busy-threads -1] => /--busy-threads must be at least 0/,
      %w[bench http ftp://x/] => /not an http or https URL/,
      %w[bench http http://] => /not an http or https URL|is no URL/,
      %w[bench http http://x/ --small start] => /work with our own sites only/,
      %w[bench http --models tea] => /unknown model "tea"; choose from stock, custom-16kbuffer/,
      %w[bench report] => /no files given/,
      %w[bench report --graph tea x.csv] => /--graph takes %CPU/
    }.each do |argv, message|
      status, out, err = cli(*argv)
      assert_equal [64, ""], [status, out], argv.inspect
      assert_match message, err
    end
  end

  def test_the_figures_of_2008
    sheet = Sheet.parse(OF_2008)
    medians = sheet.medians.rows
    assert_equal [%w[seattle stock], %w[seattle curb], %w[dallas stock], %w[dallas curb]],
      medians.map { |row| row.values_at("Site", "Impl") }
    assert_equal [85.0, 20.0, 90.0, 20.0], medians.map { |row| row["%CPU"].to_f }
    by_site, by_implementation = sheet.charts("%CPU").values_at("percent-cpu-by-site", "percent-cpu-by-implementation")
      .map { |chart| REXML::Document.new(chart.to_svg) }
    assert_equal ["stock, seattle: 85", "curb, seattle: 20", "stock, dallas: 90", "curb, dallas: 20"].sort,
      bars(by_site)
    assert_equal ["seattle, stock: 85", "dallas, stock: 90", "seattle, curb: 20", "dallas, curb: 20"].sort,
      bars(by_implementation)
  end

  def test_a_report_of_several_files_tells_them_apart
    Dir.mktmpdir do |directory|
      old, new = %w[1.8.6 1.8.7].map { |name| File.join(directory, "#{name}.csv") }
      File.write(old, OF_2008.gsub("curb", "rfuzz"))
      File.write(new, "\uFEFF#{OF_2008.gsub("\n", "\r\n")}")
      status, out, err = cli("bench", "report", old, new, "-o", "csv", "--out", directory, "--name", "both")
      assert_equal [0, ""], [status, err]
      assert_equal ["stock (1.8.6)", "rfuzz", "stock (1.8.7)", "curb"],
        Sheet.parse(out).rows.map { |row| row["Impl"] }.uniq
      assert_equal out, File.read(File.join(directory, "both.csv"))
      assert_equal 8, bars(REXML::Document.new(File.read(File.join(directory, "both-percent-cpu-by-site.svg")))).size
      assert_includes File.read(File.join(directory, "both.md")),
        "![percent-cpu-by-implementation](both-percent-cpu-by-implementation.svg)"
    end
  end

  def test_malformed_files
    Dir.mktmpdir do |directory|
      {"x.csv" => ["a,b\n1,2\n", /lacks the column "Site"/],
       "y.csv" => [%(Site,"Impl\n), /a quotation in the CSV does not end/],
       "z.json" => ["{}", /not a record of heddle bench/],
       "w.json" => ["{", /not JSON/]}.each do |name, (text, message)|
        File.write(File.join(directory, name), text)
        status, _, err = cli("bench", "report", File.join(directory, name))
        assert_equal 69, status
        assert_match message, err
      end
      assert_match(/cannot read/, cli("bench", "report", File.join(directory, "none.csv")).last)
    end
  end

  def test_csv_of_other_programs
    text = %(a,"b, ""c""",\r\n\r\n,"d\ne",f\n"g",h,)
    assert_equal [["a", "b, \"c\"", ""], ["", "d\ne", "f"], ["g", "h", ""]], Heddle::Lab::Report::CSV.parse(text)
  end

  private

  # The titles of an SVG's bars.
  def bars(document)
    REXML::XPath.match(document, "//svg:rect/svg:title", "svg" => "http://www.w3.org/2000/svg").map(&:text).sort
  end
end
