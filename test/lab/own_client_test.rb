# frozen_string_literal: true

require "test_helper"
require "stringio"
require "tmpdir"
require "heddle/lab"
require "support/lab_records"

# `heddle bench http --adapter FILE` measures the client of a reader, and NAME=URL the reader's own server.
class OwnClientTest < Minitest::Test
  GUIDE = File.read(File.expand_path("../../guides/measuring.md", __dir__))
  ADAPTER = GUIDE[/(?<=^```ruby\n)require "net.http"\n\nclass MyClient < .*?^end$/m]

  def setup
    @directory = Dir.mktmpdir
  end

  def teardown = FileUtils.remove_entry(@directory)

  def bench(*argv)
    out, err = StringIO.new, StringIO.new
    [Heddle::Lab::CLI.run(["bench", "http", "--rounds", "1", "--no-twins", *argv], out: out, err: err), out.string,
      err.string]
  end

  def file(text, name = "my_client.rb") = File.join(@directory, name).tap { |path| File.write(path, text) }

  def test_the_adapter_of_the_guide
    status, out, err = bench("--models", "stock", "--adapter", file(ADAPTER),
      "--sites", "local", "--size", "1000", "--dest", "block,string,file")
    assert_equal 0, status, out + err
    assert_match(/^my_client( +[\d.]+.*){3}$/, out)
    refute_match(/went wrong/, out)
  end

  def test_a_client_that_returns_another_body
    path = file("#{ADAPTER.sub("Net::HTTP.get(@uri)", '"tea"')}\n")
    status, out, = bench("--models", "stock", "--adapter", path, *%w[--sites local --size 1000 --dest string])
    assert_equal 1, status
    assert_match(/my_client .*errors, the first: /, out)
  end

  def test_files_that_are_no_adapter
    assert_includes bench("--adapter", File.join(@directory, "absent.rb"))[2], "there is no file"
    assert_includes bench("--adapter", file("", "curb.rb"))[2], "curb is another model's name; rename the file"
    _, out, = bench("--models", "stock", "--adapter", file("Other = 1\n"), "--sites", "local", "--size", "10")
    assert_includes out, "my_client: not measured: "
  end

  # Reading the record, elsewhere or later, takes no client.
  def test_a_run_with_an_adapter_is_shown_without_it
    record = LabRecords.http("4.0.5")
    record.header["argv"] += ["--adapter", "absent.rb"]
    File.write(path = File.join(@directory, "run.json"), record.to_json)
    out, err = StringIO.new, StringIO.new
    assert_equal 0, Heddle::Lab::CLI.run(["compare", path, path], out: out, err: err), err.string
  end

  def test_two_sites_of_one_name
    status, _, err = bench("a=http://127.0.0.1:1/1", "a=http://127.0.0.1:1/2")
    assert_equal 64, status
    assert_includes err, "two sites have the name a"
  end

  def test_urls_with_names
    Heddle::Lab::LoadServer.start do |server|
      url = "http://127.0.0.1:#{server.port}/b/1000"
      status, out, err = bench("--models", "stock", "near=#{url}", "far=#{url}?")
      assert_equal 0, status, err
      assert_match(/Bodies from near, far by HTTP clients/, out)
      assert_match(/ near +far$/, out)
    end
    assert_equal 64, bench("near=tea").first
  end
end
