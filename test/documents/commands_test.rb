# frozen_string_literal: true

require "test_helper"
require "net/http"
require "shellwords"
require "support/fresh_clone"

runs_on rubies: :newest, short: false

# Every command of README.md, the guides, CONTRIBUTING.md and bench/README.md other than benches and `gem install` runs
# in a fresh clone: with fewer rounds, and with an existing file or Ruby instead of an invented one.
class CommandsTest < Minitest::Test
  include FreshClone

  hard_deadline 240 # the first compiles

  RUBY = RUBY_VERSION[/\A\d+\.\d+/]

  FreshClone::COMMANDS.grep_v(/heddle bench|\Agem install/).each do |command|
    define_method(:"test_#{command.gsub(/\W+/, "_")}") { try(command) }
  end

  private

  def try(command)
    case command
    when "bin/try"
      assert_match(/^heddle /, run_there("bin/try --requests 20 --delays 0 --rounds 1 --models heddle,async"))
    when "bin/setup" then run_there(command)
    when "bin/setup --all" then set_up
    when %r{\Abin/test}
      out = run_there("bin/test --ruby #{RUBY} --no-checks test/lab/plan_test.rb")
      assert_match(/\d+ runs, .* 0 failures, 0 errors/, out)
    when %r{\Ascript/with-ruby}
      set_up
      run_there(at_hand(command))
    when %r{\Abin/heddle report --history (\S+)}
      run_there("bin/heddle bench delay --requests 20 --delays 0 --rounds 1 --models heddle --record #{$1}")
      assert_match(/^CPU|^Requests a second/, run_there(command))
    when %r{\Abin/heddle report}
      assert_match(%r{^tmp/results/report\.html$}, run_there(["bash", "-c", command])) # the shell finds the files
    when %r{\Abin/heddle serve} then serve(command)
    when /\Aapt-get install/ then assert_packages(command.split.drop(3))
    when /\Agrep/
      set_up
      assert_match(%r{/sentry-ruby-}, run_there(["script/with-ruby", RUBY, "bash", "-c", command]))
    else flunk "no rule for how to try #{command.inspect}"
    end
  end

  # script/newcomer installs them on a fresh Debian.
  def assert_packages(packages)
    known = File.read(File.join(ROOT, "script/setup.sh"))[/^packages_to_build=\(.*?\)/m]
    packages.each { |package| assert_match(/(?<![\w-])#{package}(?![\w-])/, known) }
  end

  def at_hand(command)
    command.sub(/(?<=with-ruby )\S+/, RUBY).sub("test/loop/some_test.rb", "test/loop/timers_test.rb").sub("/pipe/",
      "/sleep/")
  end

  def serve(command)
    Open3.popen2(environment, *command.sub("--port 3307", "--port 0").split,
      chdir: FreshClone.folder) do |_, out, process|
      port = out.gets.to_s[/listening on 127\.0\.0\.1:(\d+)$/, 1]
      assert port, "it does not listen"
      assert_equal "done", Net::HTTP.get("127.0.0.1", "/0", port.to_i) unless command.include?("--proxy")
      Process.kill(:TERM, process.pid)
      assert_predicate process.value, :success?
    end
  end
end
