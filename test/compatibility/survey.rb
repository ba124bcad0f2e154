# frozen_string_literal: true

# test/compatibility/survey.rb [LIBRARY...]: examines these libraries, or all, on this Ruby, each in a process of its
# own, and keeps what it finds. `rake compatibility` calls it, in the bundle of this folder.

require "fileutils"
require_relative "kit"
require_relative "results"
require "support/slowness"

module Compatibility
  # Examines many libraries at once, since they mostly wait.
  class Survey
    include Heddle::Clock

    # Seconds for a library, which may hang; longer on a slow machine.
    LIMIT = Slowness.stretch(40)
    AT_ONCE = 8
    # Of libraries that are asked once more.
    ONCE_MORE = 3
    EXAMINE = [RbConfig.ruby, File.expand_path("examine.rb", __dir__)].freeze
    LOGS = File.expand_path("../../tmp/compatibility", __dir__)
    private_constant :LIMIT, :AT_ONCE, :ONCE_MORE, :EXAMINE, :LOGS

    # @param libraries [Array<Library>]
    def initialize(libraries)
      @libraries = libraries
    end

    # A fault for which no reason is known may be the busy machine's: such a library is asked once more, beside fewer
    # others.
    #
    # @yield [Library, Finding] as they are examined
    # @return [Hash{String => Hash}] what was found, by the library's name
    def run(&block)
      start_servers
      FileUtils.mkdir_p(LOGS)
      found = examine_all(@libraries, AT_ONCE, &block)
      doubtful = @libraries.select { |library| Finding.new(found[library.name]).doubts(library).any? }
      found.merge(examine_all(doubtful, ONCE_MORE, &block))
    end

    private

    def examine_all(libraries, at_once)
      queue = Thread::Queue.new(libraries).close
      found = {}
      workers = Array.new(at_once) do
        Thread.new do
          while (library = queue.pop)
            found[library.name] = examine(library)
            yield library, Finding.new(found[library.name]) if block_given?
          end
        end
      end
      workers.each(&:join)
      found
    end

    # Real servers are shared by all processes.
    def start_servers
      @libraries.map { |library| library.wanted_peer.first }.uniq.intersection(Servers::KINDS.keys)
        .each { |kind| Servers.public_send(kind) }
    end

    def examine(library)
      found = {}
      output = IO.popen(Servers.elsewhere, [*EXAMINE, library.name], err: log(library), pgroup: true)
      ends = now + LIMIT
      while (line = next_line(output, ends))
        found.update(JSON.parse(line))
      end
      hung = now >= ends
      status = stop(output)
      found["ended"] = hung ? "hung" : "ended: #{status}" unless found.key?("afterwards")
      found
    end

    def next_line(output, ends)
      output.gets if output.wait_readable([ends - now, 0].max)
    end

    # Also what it has started.
    def stop(output)
      Process.kill(:KILL, -output.pid)
      close(output)
    rescue Errno::ESRCH
      close(output)
    end

    def close(output)
      output.close
      $?.signaled? ? "signal #{$?.termsig}" : "status #{$?.exitstatus}"
    end

    def log(library) = File.join(LOGS, "#{library.name.tr("^a-zA-Z0-9", "_")}-#{RUBY_VERSION[/\A\d+\.\d+/]}.log")
  end
end

if $PROGRAM_NAME == __FILE__
  ruby = RUBY_VERSION[/\A\d+\.\d+/]
  all = Compatibility.libraries.select { |_, library| library.runs_on?(ruby) }
  chosen = ARGV.empty? ? all.values : all.fetch_values(*ARGV)
  results = Compatibility::Results.new(ruby)
  $stdout.sync = true
  found = Compatibility::Survey.new(chosen).run do |library, finding|
    faults = finding.faults(library.questions)
    puts "#{library.name} #{finding.version}: #{faults.empty? ? "yes" : faults} #{finding.afterwards}"
  end
  results.keep(all.keys)
  results.add(found)
end
