# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "open3"
require "tmpdir"

# heddle-lab as a gem that root has installed, used by another user.
class InstalledLabTest < Minitest::Test
  LAB = File.expand_path("../../lab", __dir__)
  NOBODY = 65_534

  # Its sources belong to root: the load server is built in the user's cache, once.
  def test_the_load_server_of_a_gem_owned_by_root
    installed do |gem, cache|
      out = in_users_hands(gem, cache, <<~RUBY)
        require "heddle/lab"
        require "net/http"
        Heddle::Lab::LoadServer.start { |server| puts Net::HTTP.get(server.host, "/0", server.port) }
        program = Heddle::Lab::ServerProcess.program
        puts program, File.mtime(program).to_f
      RUBY
      assert_equal "done", out.first
      assert out[1].start_with?("#{cache}/heddle/"), out[1]
      assert_equal out, in_users_hands(gem, cache, <<~RUBY)
        require "heddle/lab"
        program = Heddle::Lab::ServerProcess.program
        puts "done", program, File.mtime(program).to_f
      RUBY
    end
  end

  private

  def installed
    Dir.mktmpdir("heddle-installed") do |folder|
      gem, cache = "#{folder}/gem", "#{folder}/cache"
      FileUtils.mkdir_p([gem, cache])
      FileUtils.cp_r(["#{LAB}/lib", "#{LAB}/ext"], gem)
      FileUtils.mkdir_p("#{gem}/lib/heddle/core") # of the gem heddle
      FileUtils.cp(File.expand_path("../../lib/heddle/core/clock.rb", __dir__), "#{gem}/lib/heddle/core")
      FileUtils.rm_f(Dir["#{gem}/ext/server/heddle-server*"])
      FileUtils.chmod_R("a+rX,a-w", gem)
      FileUtils.chmod(0o755, folder)
      FileUtils.chown(NOBODY, NOBODY, cache) if Process.euid.zero?
      yield gem, cache
    ensure
      FileUtils.chmod_R("u+w", folder)
    end
  end

  # root may write everywhere, so the program becomes another user where this is root.
  def in_users_hands(gem, cache, program)
    leave_root =
      "if Process.euid.zero?; Process::GID.change_privilege(#{NOBODY}); Process::UID.change_privilege(#{NOBODY}); end"
    env = {"XDG_CACHE_HOME" => cache, "RUBYOPT" => nil}
    command = [RbConfig.ruby, "--disable=gems", "-I", "#{gem}/lib", "-e", "#{leave_root}\n#{program}"]
    out, status = Open3.capture2e(env, *command, chdir: "/")
    assert status.success?, out
    out.lines(chomp: true)
  end
end
