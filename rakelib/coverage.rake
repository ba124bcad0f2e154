# frozen_string_literal: true

desc "Run the tests of the loop on every backend and list the lines of C that no test ran"
task coverage: "compile:coverage" do
  folder = File.expand_path("tmp/native/coverage/#{RUBY_VERSION}")
  rm_f FileList["#{folder}/*.gcda", "#{folder}/*.gcov"], verbose: false
  %w[uring epoll poll].each do |backend|
    environment = {"HEDDLE_NATIVE_DIR" => folder, "HEDDLE_BACKEND" => backend}
    sh(environment, RbConfig.ruby, "test/support/driver.rb",
      *ENV.fetch("FILES", "test/loop test/hazards").split, verbose: false) { nil }
  end
  counts = FileList["#{folder}/*.gcda"].flat_map do |data|
    chdir(folder, verbose: false) { `gcov --stdout #{File.basename(data)} 2>/dev/null` }.lines
  end
  source = nil
  uncovered = Hash.new { |hash, key| hash[key] = [] }
  ran = Hash.new(0)
  counts.each do |line|
    count, number, text = line.chomp.split(":", 3)
    next source = text.delete_prefix("Source:") if number.to_i.zero? && text&.start_with?("Source:")
    next unless source&.include?("/ext/heddle/") && source.end_with?(".c") && text

    name = source[%r{ext/heddle/.*}]
    case count.strip
    when "#####", "=====" then uncovered[name] << [number.to_i, text]
    when /\A\d/ then ran[name] += 1
    end
  end
  uncovered.sort.each do |name, lines|
    puts "\n#{name}: #{lines.size} of #{lines.size + ran[name]} lines not run"
    lines.each { |number, text| puts format("%6d %s", number, text) }
  end
  missed, total = uncovered.sum { |_, lines| lines.size }, uncovered.sum { |_, lines| lines.size } + ran.values.sum
  puts format("\n%.1f %% of %d lines of C ran", 100.0 * (total - missed) / total, total)
end
